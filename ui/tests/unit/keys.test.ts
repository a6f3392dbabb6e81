import { expect, test } from 'vitest';
import { FakeBackend } from '../../src/backend/fake/fake';
import { parseOptions } from '../../src/backend/fake/options';
import { handleShortcut, KEYS } from '../../src/components/shortcuts';
import { App } from '../../src/state/app.svelte';

async function start(): Promise<App> {
  const app = new App(new FakeBackend(parseOptions('fast')));
  await app.start();
  await app.openConversation(app.conversations[0].id);
  return app;
}

const press = (app: App, init: KeyboardEventInit) => {
  const event = new KeyboardEvent('keydown', { ...init, cancelable: true });
  handleShortcut(event, app);
  return event.defaultPrevented;
};

test('the keys that are told of work anywhere', async () => {
  const app = await start();
  app.toasts.show('Deleted', { label: 'Undo', run: () => undefined });
  const anywhere = KEYS.flatMap(([keys]) => /^Ctrl (\S)$/.exec(keys)?.[1] ?? []);
  expect(anywhere.length).toBe(6);
  for (const key of anywhere) expect(press(app, { key, ctrlKey: true }), key).toBe(true);
  expect(press(app, { key: 'n', ctrlKey: true, shiftKey: true })).toBe(false);
  expect(press(app, { key: 'f', ctrlKey: true, shiftKey: true })).toBe(true);
  expect(press(app, { key: 'q', ctrlKey: true })).toBe(false);
});

test('the window is not made anew while it holds words', async () => {
  const app = await start();
  const chat = app.open!;
  expect(press(app, { key: 'F5' })).toBe(false);
  chat.startEditLast();
  chat.edit?.write('Other words.');
  expect(press(app, { key: 'F5' })).toBe(true);
  chat.closeEdit();
  expect(press(app, { key: 'r', ctrlKey: true })).toBe(true);
  chat.startEditLast();
  chat.discardEdit();
  app.newConversation();
  expect(press(app, { key: 'F5' })).toBe(false);
  app.write('brief');
  expect(press(app, { key: 'F5' })).toBe(true);
});
