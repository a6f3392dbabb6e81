import { expect, test, vi } from 'vitest';
import { FakeBackend } from '../../src/backend/fake/fake';
import { parseOptions } from '../../src/backend/fake/options';
import { App } from '../../src/state/app.svelte';

async function windowOver(backend: FakeBackend): Promise<App> {
  const app = new App(backend);
  await app.start();
  return app;
}

test('the next window opens the conversation that was looked at last, and the blank page if that was it', async () => {
  const backend = new FakeBackend(parseOptions('fast'));
  const app = await windowOver(backend);
  expect(app.open).toBeNull();
  await app.openConversation(app.conversations[1].id);
  const second = app.open?.id;
  expect((await windowOver(backend)).open?.id).toBe(second);
  app.newConversation();
  expect((await windowOver(backend)).open).toBeNull();
  app.write('brief');
  await app.send();
  expect((await windowOver(backend)).open?.id).toBe(app.open?.id);
  expect(app.open?.id).toBeDefined();
});

test('a conversation that was deleted meanwhile leaves the blank page', async () => {
  const backend = new FakeBackend(parseOptions('fast'));
  const app = await windowOver(backend);
  await app.openConversation(app.conversations[0].id);
  await backend.deleteConversation(app.conversations[0].id);
  const next = await windowOver(backend);
  expect([next.open, next.problem]).toEqual([null, null]);
});

test('the size of the text is kept for the next window', async () => {
  const backend = new FakeBackend(parseOptions('fast'));
  const app = await windowOver(backend);
  app.zoom.larger();
  app.zoom.larger();
  expect(app.zoom.factor).toBe(1.25);
  const next = await windowOver(backend);
  expect(next.zoom.factor).toBe(1.25);
  next.zoom.reset();
  next.zoom.smaller();
  expect((await windowOver(backend)).zoom.factor).toBe(0.9);
});

test('the text is never smaller than half or larger than three times its size', async () => {
  const app = await windowOver(new FakeBackend(parseOptions('fast')));
  for (let step = 0; step < 20; step += 1) app.zoom.larger();
  expect([app.zoom.factor, app.zoom.atMost]).toEqual([3, true]);
  for (let step = 0; step < 20; step += 1) app.zoom.smaller();
  expect([app.zoom.factor, app.zoom.atLeast]).toEqual([0.5, true]);
});

test('a size that the shell refuses is not shown', async () => {
  const backend = new FakeBackend(parseOptions('fast'));
  const app = await windowOver(backend);
  backend.setZoom = () => Promise.reject({ code: 'internal', message: 'no' });
  app.zoom.larger();
  await vi.waitFor(() => expect(app.zoom.factor).toBe(1));
});
