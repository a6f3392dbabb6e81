// Key events of an input method: browsers set `isComposing`, WebKit only keyCode 229.
import { readdirSync, readFileSync } from 'node:fs';
import { fireEvent, render, screen, waitFor } from '@testing-library/svelte';
import { expect, test } from 'vitest';
import { FakeBackend } from '../../src/backend/fake/fake';
import { parseOptions } from '../../src/backend/fake/options';
import Root from '../../src/components/Root.svelte';
import { App } from '../../src/state/app.svelte';

const FORMS: KeyboardEventInit[] = [{ isComposing: true }, { keyCode: 229 }];
const KEYS = ['Enter', 'Escape', 'ArrowUp', 'ArrowDown', 'ArrowLeft', 'ArrowRight', 'Home', 'End', 'Delete', 'F2', 'Tab', 'k'];

async function show(options = 'fast'): Promise<App> {
  const app = new App(new FakeBackend(parseOptions(options)));
  render(Root, { app });
  await waitFor(() => expect(app.ready).toBe(true));
  await app.openConversation(app.conversations[0].id);
  await waitFor(() => expect(app.open?.loaded).toBe(true));
  return app;
}

/** Presses every key on every focusable element and returns the events that a handler consumed. */
function pressAll(form: KeyboardEventInit): string[] {
  const taken: string[] = [];
  const targets = [...document.querySelectorAll<HTMLElement>('button, input, textarea, select, summary, [tabindex]'), document.body];
  for (const target of targets) {
    const seen = () => taken.push(`seen by ${target.outerHTML.slice(0, 80)}`);
    target.addEventListener('keydown', seen);
    for (const key of KEYS) {
      const event = new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true, ctrlKey: key === 'k', ...form });
      target.dispatchEvent(event);
      if (event.defaultPrevented) taken.push(`${key} on ${target.outerHTML.slice(0, 80)}`);
    }
    target.removeEventListener('keydown', seen);
  }
  return taken;
}

test('no key of an input method reaches a handler, in whatever state the window is', async () => {
  const app = await show();
  for (const form of FORMS) {
    expect(pressAll(form)).toEqual([]);
    app.models.choosing = true;
    await waitFor(() => expect(screen.getAllByTestId('model-item').length).toBeGreaterThan(0));
    expect(pressAll(form)).toEqual([]);
    expect(app.models.choosing).toBe(true);
    app.models.choosing = false;
    app.settingsOpen = true;
    app.open!.startEditLast();
    await waitFor(() => expect(screen.getByTestId('edit-text')).toBeTruthy());
    expect(pressAll(form)).toEqual([]);
    expect(app.open!.edit).not.toBeNull();
    expect(app.settingsOpen).toBe(true);
    app.open!.closeEdit();
    await fireEvent.input(screen.getByTestId('search'), { target: { value: 'oven' } });
    await waitFor(() => expect(screen.getAllByTestId('search-hit').length).toBeGreaterThan(0));
    expect(pressAll(form)).toEqual([]);
    app.search.clear();
    app.settingsOpen = false;
    await waitFor(() => expect(screen.getAllByTestId('conversation-item').length).toBeGreaterThan(0));
  }
});

test('a name that is being composed is neither saved nor given up', async () => {
  const app = await show();
  const before = app.conversations[0].title;
  const item = screen.getAllByTestId('conversation-item')[0];
  await fireEvent.keyDown(item, { key: 'F2' });
  const field = await waitFor(() => screen.getByLabelText<HTMLInputElement>('Title'));
  await fireEvent.input(field, { target: { value: 'にほん' } });
  for (const form of FORMS) {
    for (const key of ['Enter', 'Escape']) await fireEvent.keyDown(field, { key, ...form });
  }
  expect(screen.getByLabelText<HTMLInputElement>('Title').value).toBe('にほん');
  expect(app.conversations[0].title).toBe(before);
  await fireEvent.keyDown(field, { key: 'Enter' });
  await waitFor(() => expect(app.conversations[0].title).toBe('にほん'));
});

test('Escape that ends a composition stops no reply', async () => {
  const app = await show('rate:20');
  app.write('Tell me about bread at length.');
  void app.send();
  await waitFor(() => expect(app.open?.streaming).toBe(true));
  for (const form of FORMS) await fireEvent.keyDown(screen.getByTestId('composer'), { key: 'Escape', ...form });
  expect(app.open?.stream?.stopping).toBe(false);
  await fireEvent.keyDown(screen.getByTestId('composer'), { key: 'Escape' });
  expect(app.open?.stream?.stopping ?? true).toBe(true);
});

test('no handler looks for keys before the guard does', () => {
  const folder = 'src/components/';
  for (const file of readdirSync(folder)) {
    const text = readFileSync(folder + file, 'utf8');
    // The guard must be the first capture listener of the window; a second one could run before it.
    if (/onkeydowncapture|'keydown',[^)]*true\)/.test(text)) expect(file).toBe('Root.svelte');
    expect(/'key(?:press|up)'|onkey(?:press|up)/.test(text), file).toBe(false);
  }
});
