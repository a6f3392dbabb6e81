import { fireEvent, render, screen, waitFor } from '@testing-library/svelte';
import { expect, test } from 'vitest';
import { FakeBackend } from '../../src/backend/fake/fake';
import { parseOptions } from '../../src/backend/fake/options';
import Root from '../../src/components/Root.svelte';
import { App } from '../../src/state/app.svelte';

/** The content of the page at the moment it reports that it is drawn. */
async function shown(options: string, change: (backend: FakeBackend) => void = () => undefined): Promise<{ ids: string[]; app: App }> {
  const backend = new FakeBackend(parseOptions(options));
  change(backend);
  const ids = new Promise<string[]>((resolve) => {
    backend.pageDrawn = async () => resolve([...document.querySelectorAll('[data-testid]')].map((element) => element.getAttribute('data-testid') ?? ''));
  });
  const app = new App(backend);
  render(Root, { app });
  return { ids: await ids, app };
}

test('the window shows itself with its page drawn, and does not wait for a model', async () => {
  const never = new Promise<never>(() => undefined);
  const { ids } = await shown('fast', (backend) => (backend.listModels = () => never));
  expect(ids).toContain('composer');
  expect(ids.filter((id) => id === 'conversation-item').length).toBeGreaterThan(3);
});

test('a locked window shows itself as well', async () => {
  expect((await shown('locked')).ids).toContain('unlock-page');
});

test('the settings say the version, what computes and where things are, and no figure twice', async () => {
  const { app } = await shown('fast');
  await waitFor(() => expect(app.ready).toBe(true));
  await fireEvent.click(screen.getByTestId('settings-open'));
  const about = await screen.findByTestId('about');
  expect(about.textContent).toContain('Reprise 0.1.0');
  expect(about.textContent).toContain('CPU, 8 threads');
  expect(about.textContent).toContain('.local/share/reprise');
  expect(document.body.textContent?.match(/CPU, 8 threads/g)).toHaveLength(1);
});
