import { fireEvent, render, screen, waitFor } from '@testing-library/svelte';
import { afterEach, expect, test, vi } from 'vitest';
import { FakeBackend } from '../../src/backend/fake/fake';
import { parseOptions } from '../../src/backend/fake/options';
import Root from '../../src/components/Root.svelte';
import { App } from '../../src/state/app.svelte';

afterEach(() => {
  vi.useRealTimers();
});

function start(options: string): { app: App; backend: FakeBackend } {
  const backend = new FakeBackend(parseOptions(options));
  return { app: new App(backend), backend };
}

async function settings(options = 'fast'): Promise<{ app: App; backend: FakeBackend }> {
  const started = start(options);
  render(Root, { app: started.app });
  await waitFor(() => expect(started.app.ready).toBe(true));
  await fireEvent.click(screen.getByTestId('settings-open'));
  await waitFor(() => expect(started.app.privacy.state).not.toBeNull());
  return started;
}

async function type(testid: string, text: string): Promise<void> {
  await fireEvent.input(screen.getByTestId(testid), { target: { value: text } });
}

const decide = () => screen.getByTestId<HTMLButtonElement>('privacy-decide');

test('a locked application asks for the passphrase and shows nothing else', async () => {
  const { app } = start('fast,locked');
  render(Root, { app });
  await waitFor(() => screen.getByTestId('unlock-page'));
  expect(screen.queryByTestId('composer')).toBeNull();
  expect(app.conversations).toEqual([]);
  await type('passphrase', 'open sesam');
  await fireEvent.click(screen.getByTestId('unlock'));
  expect((await screen.findByRole('alert')).textContent).toContain('This is not the passphrase');
  expect(screen.getByTestId<HTMLInputElement>('passphrase').value).toBe('');
  await type('passphrase', 'open sesame');
  await fireEvent.click(screen.getByTestId('unlock'));
  await waitFor(() => screen.getByTestId('composer'));
  expect(app.conversations.length).toBeGreaterThan(0);
});

test('conversations are encrypted under a passphrase said twice, and it says before what is at stake', async () => {
  const { app } = await settings();
  await fireEvent.click(screen.getByTestId('privacy-ask-on'));
  expect(screen.getByTestId('privacy').textContent).toContain('Without it every conversation is lost');
  await type('passphrase-new', 'short');
  await type('passphrase-again', 'short');
  expect(decide().disabled).toBe(true);
  await type('passphrase-new', 'open sesame');
  expect(decide().disabled).toBe(true);
  await type('passphrase-again', 'open sesame');
  expect(decide().disabled).toBe(false);
  await fireEvent.click(decide());
  await waitFor(() => expect(app.privacy.state?.privacy).toBe('turning_on'));
  expect(screen.getByTestId('privacy').textContent).toContain('Your passphrase unlocks them');
  expect(screen.queryByTestId('passphrase-new')).toBeNull();
});

test('a missing keychain is told, and a passphrase can be chosen instead', async () => {
  const { app } = await settings('fast,no-keychain');
  await fireEvent.click(screen.getByTestId('privacy-ask-on'));
  await fireEvent.click(screen.getByTestId('privacy-keychain'));
  expect(decide().disabled).toBe(false);
  await fireEvent.click(decide());
  expect((await screen.findByRole('alert')).textContent).toContain('Use a passphrase instead');
  expect(app.privacy.state?.privacy).toBe('off');
});

test('the old passphrase is asked for before it is changed', async () => {
  const { app } = start('fast,locked');
  render(Root, { app });
  await waitFor(() => expect(app.locked).toBe(true));
  expect(await app.unlock('open sesame')).toBeNull();
  await waitFor(() => screen.getByTestId('settings-open'));
  await fireEvent.click(screen.getByTestId('settings-open'));
  await fireEvent.click(await screen.findByTestId('privacy-change'));
  await type('passphrase-new', 'another one');
  await type('passphrase-again', 'another one');
  expect(decide().disabled).toBe(true);
  await type('passphrase-current', 'no idea');
  await fireEvent.click(decide());
  expect((await screen.findByRole('alert')).textContent).toContain('This is not the passphrase');
  await type('passphrase-current', 'open sesame');
  await fireEvent.click(decide());
  await waitFor(() => expect(screen.queryByTestId('passphrase-current')).toBeNull());
  expect(app.privacy.problem).toBeNull();
});

test('while blocks are rewritten their number is shown, and nobody asks once it is done', async () => {
  vi.useFakeTimers();
  const { app, backend } = start('fast,long');
  await app.start();
  vi.spyOn(backend.cache, 'numTokens').mockReturnValue(100 * 64);
  const end = app.privacy.watch();
  await vi.advanceTimersByTimeAsync(10);
  expect(await app.privacy.turnOn({ with: 'passphrase', passphrase: 'open sesame' })).toBe(true);
  expect(app.privacy.state).toEqual({ privacy: 'turning_on', unlocks: 'passphrase', blocks_left: 100 });
  await vi.advanceTimersByTimeAsync(2000);
  expect(app.privacy.state?.blocks_left).toBe(60);
  await vi.advanceTimersByTimeAsync(4000);
  expect(app.privacy.state).toEqual({ privacy: 'on', unlocks: 'passphrase', blocks_left: 0 });
  const ask = vi.spyOn(backend, 'privacyState');
  await vi.advanceTimersByTimeAsync(5000);
  expect(ask).not.toHaveBeenCalled();
  expect(await app.privacy.turnOff()).toBe(true);
  await vi.advanceTimersByTimeAsync(5000);
  expect(app.privacy.state).toEqual({ privacy: 'off', unlocks: null, blocks_left: 0 });
  end();
});
