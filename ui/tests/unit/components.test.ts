import { fireEvent, render, screen, waitFor } from '@testing-library/svelte';
import { expect, test, vi } from 'vitest';
import { FakeBackend } from '../../src/backend/fake/fake';
import { parseOptions } from '../../src/backend/fake/options';
import QuietLine from '../../src/components/QuietLine.svelte';
import Root from '../../src/components/Root.svelte';
import { App } from '../../src/state/app.svelte';
import { isoTime, shortTime } from '../../src/state/time';

async function show(options = 'empty,fast'): Promise<App> {
  const app = new App(new FakeBackend(parseOptions(options)));
  render(Root, { app });
  await waitFor(() => expect(app.ready).toBe(true));
  return app;
}

test('the quiet line carries its counts for the eye and for tests', () => {
  const stats = { prefill: { resident: 3120, restored: 210, computed: 27 }, prompt_tokens: 3357, completion_tokens: 90, ttft_ms: 84, tokens_per_s: 41, restore_ms: 3 };
  render(QuietLine, { stats });
  const line = screen.getByTestId('quiet-line');
  expect(line.classList.contains('quiet-line')).toBe(true);
  expect(line.dataset).toMatchObject({ resident: '3120', restored: '210', computed: '27' });
  expect(line.textContent?.trim()).toBe('3\u00a0120 reused · 210 restored · 27 computed · first token 84\u00a0ms · 41 tokens/s');
});

test('Enter sends, Shift+Enter and Enter that ends a composition do not', async () => {
  const app = await show();
  const composer = screen.getByTestId<HTMLTextAreaElement>('composer');
  await fireEvent.input(composer, { target: { value: 'brief' } });
  await fireEvent.keyDown(composer, { key: 'Enter', shiftKey: true });
  await fireEvent.keyDown(composer, { key: 'Enter', isComposing: true });
  await fireEvent.keyDown(composer, { key: 'Enter', keyCode: 229 });
  expect(app.open).toBeNull();
  await fireEvent.keyDown(composer, { key: 'Enter' });
  await waitFor(() => expect(app.open).not.toBeNull());
  await waitFor(() => expect(composer.value).toBe(''));
});

test('an empty message is not sent', async () => {
  const app = await show();
  const composer = screen.getByTestId('composer');
  await fireEvent.input(composer, { target: { value: '  \n ' } });
  expect(screen.getByTestId<HTMLButtonElement>('send').disabled).toBe(true);
  await fireEvent.keyDown(composer, { key: 'Enter' });
  expect(app.open).toBeNull();
});

test('the list names its days and opens what is chosen', async () => {
  const app = await show('');
  expect(screen.getByText('Yesterday')).toBeTruthy();
  const item = screen.getAllByTestId('conversation-item')[0];
  await fireEvent.click(item);
  await waitFor(() => expect(app.open?.loaded).toBe(true));
  expect(item.getAttribute('aria-current')).toBe('page');
});

test('without a model the page asks for one', async () => {
  await show('no-model,empty');
  expect(screen.getByText('No model yet')).toBeTruthy();
  expect(screen.getByTestId('model-path')).toBeTruthy();
});

test('0 and -1 in a field mean what they mean elsewhere', async () => {
  const app = await show('');
  await fireEvent.click(screen.getAllByTestId('conversation-item')[0]);
  await waitFor(() => expect(app.open?.loaded).toBe(true));
  await fireEvent.click(screen.getByTestId('settings-open'));
  const type = async (label: string, value: string) => {
    await fireEvent.change(document.querySelector(`[data-setting="${label}"]`) as HTMLInputElement, { target: { value } });
    return app.open?.conversation.sampling;
  };
  expect((await type('Top-k', '40'))?.top_k).toBe(40);
  for (const off of ['0', '-1']) expect((await type('Top-k', off))?.top_k, 'off').toBeNull();
  expect((await type('Top-p', '1'))?.top_p, 'off').toBeNull();
  expect((await type('Top-p', '0.9'))?.top_p).toBe(0.9);
  expect((await type('Top-p', '0'))?.top_p, 'refused').toBe(0.9);
  expect((await type('Min-p', '0'))?.min_p, 'off').toBeNull();
  expect((await type('Seed', '0'))?.seed, 'a seed').toBe(0);
  expect((await type('Seed', '-1'))?.seed, 'random').toBeNull();
  expect((await type('Longest reply', '7'))?.max_tokens).toBe(7);
  for (const unlimited of ['0', '-1']) expect((await type('Longest reply', unlimited))?.max_tokens).toBeNull();
  expect((await type('Repetition penalty', '1.2'))?.repetition_penalty).toBe(1.2);
  expect((await type('Repetition penalty', '0'))?.repetition_penalty, 'none').toBe(1);
});

test('settings write what was typed, and nothing out of range', async () => {
  const app = await show('');
  await fireEvent.click(screen.getAllByTestId('conversation-item')[0]);
  await waitFor(() => expect(app.open?.loaded).toBe(true));
  await fireEvent.click(screen.getByTestId('settings-open'));
  const temperature = document.querySelector('[data-setting="Temperature"]') as HTMLInputElement;
  await fireEvent.change(temperature, { target: { value: '0,3' } });
  expect(app.open?.conversation.sampling.temperature).toBe(0.3);
  await fireEvent.change(temperature, { target: { value: '99' } });
  expect(app.open?.conversation.sampling.temperature, 'not bent to the nearest').toBe(0.3);
  expect(screen.getByText('Not used: it has to be from 0 to 5.')).toBeTruthy();
  expect(temperature.getAttribute('aria-invalid')).toBe('true');
  await fireEvent.change(temperature, { target: { value: '1' } });
  expect(screen.queryByText(/Not used/)).toBeNull();
  const seed = document.querySelector('[data-setting="Seed"]') as HTMLInputElement;
  await fireEvent.change(seed, { target: { value: '42' } });
  expect(app.open?.conversation.sampling.seed).toBe(42);
  await fireEvent.change(seed, { target: { value: '' } });
  expect(app.open?.conversation.sampling.seed).toBeNull();
  const stops = document.querySelector('#stop-strings') as HTMLTextAreaElement;
  await fireEvent.change(stops, { target: { value: '\\n\\nUser:\nEND' } });
  expect(app.open?.conversation.sampling.stop).toEqual(['\n\nUser:', 'END']);
  expect(stops.value).toBe('\\n\\nUser:\nEND');
  const prompt = screen.getByTestId('system-prompt');
  await fireEvent.change(prompt, { target: { value: 'Be kind.' } });
  expect(app.open?.conversation.system_prompt).toBe('Be kind.');
});

test('what can be done with the last message is seen without a hover, and each message says when it was', async () => {
  const app = await show('');
  await fireEvent.click(screen.getAllByTestId('conversation-item')[0]);
  await waitFor(() => expect(app.open?.loaded).toBe(true));
  await waitFor(() => expect(screen.getAllByTestId('message').length).toBeGreaterThan(1));
  const messages = screen.getAllByTestId('message');
  const shown = messages.filter((message) => message.querySelector('.actions.shown'));
  expect(shown).toEqual([messages.at(-1)]);
  const rows = app.open!.rows;
  for (const message of messages) {
    const time = message.querySelector('time') as HTMLTimeElement;
    expect(time.dateTime).toBe(new Date(rows.find((row) => row.message.id === message.dataset.id)!.message.created_at).toISOString());
  }
});

test('a time is as short as it can be and still be understood, in the language of the reader', () => {
  const now = new Date(2026, 4, 12, 18, 0).getTime();
  const at = (...parts: [number, number, number, number, number]) => new Date(...parts).getTime();
  expect(shortTime(at(2026, 4, 12, 9, 5), now, 'en-GB')).toBe('09:05');
  expect(shortTime(at(2026, 4, 11, 9, 5), now, 'en-GB')).toBe('11 May, 09:05');
  expect(shortTime(at(2025, 11, 31, 23, 59), now, 'en-GB')).toContain('2025');
  expect(shortTime(at(2026, 4, 11, 9, 5), now, 'de')).toContain('Mai');
  for (const none of [0, -1, Number.NaN, 9e15]) expect(isoTime(none)).toBeNull();
});

test('only a conversation that waits says that it waits for another reply', async () => {
  const backend = new FakeBackend(parseOptions('rate:40'));
  const app = new App(backend);
  render(Root, { app });
  await waitFor(() => expect(app.ready).toBe(true));
  const ask = vi.spyOn(backend, 'sendMessage').mockReturnValue(new Promise(() => undefined));
  for (const index of [0, 1]) {
    await app.openConversation(app.conversations[index].id);
    await waitFor(() => expect(app.open?.loaded).toBe(true));
    app.draft = 'brief';
    void app.send();
    await waitFor(() => expect(ask).toHaveBeenCalledTimes(index + 1));
  }
  const said = () => screen.queryByTestId('prefill')?.textContent?.trim();
  const [first, second] = app.streams;
  await waitFor(() => expect(said()).toBe('waiting for another reply'));
  expect([first.waitsFor(app.streams), second.waitsFor(app.streams)]).toEqual([false, true]);
  second.started = true;
  expect([first.waitsFor(app.streams), second.waitsFor(app.streams), first.waitsFor([first])]).toEqual([true, false, false]);
  await waitFor(() => expect(said()).not.toBe('waiting for another reply'));
});

test('the blank page offers beginnings that fill the composer and send nothing, and takes no words away', async () => {
  const app = await show();
  expect(screen.getAllByTestId('start').length).toBe(3);
  await fireEvent.click(screen.getByText('Shorten a letter'));
  const composer = screen.getByTestId<HTMLTextAreaElement>('composer');
  await waitFor(() => expect(composer.value).toBe('Make this letter half as long, and keep its tone:\n\n'));
  await waitFor(() => expect(document.activeElement).toBe(composer));
  expect([app.open, app.conversations.length]).toEqual([null, 0]);
  expect(screen.getByTestId('starts').classList.contains('hidden')).toBe(true);
});

test('the settings say what the bar under a reply means', async () => {
  await show();
  await fireEvent.click(screen.getByTestId('settings-open'));
  const legend = await screen.findByTestId('warmth-legend');
  expect([...legend.querySelectorAll('dt')].map((name) => name.textContent)).toEqual(['reused', 'restored', 'computed']);
});
