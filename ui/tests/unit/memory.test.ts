import { fireEvent, render, screen, waitFor } from '@testing-library/svelte';
import { afterEach, expect, test, vi } from 'vitest';
import { FakeBackend } from '../../src/backend/fake/fake';
import { parseOptions } from '../../src/backend/fake/options';
import type { MemoryPlan } from '../../src/backend/types';
import Root from '../../src/components/Root.svelte';
import { App } from '../../src/state/app.svelte';
import { planLine } from '../../src/state/format';

afterEach(() => {
  vi.useRealTimers();
});

async function start(options = 'fast'): Promise<{ app: App; backend: FakeBackend }> {
  const backend = new FakeBackend(parseOptions(options));
  const app = new App(backend);
  await app.start();
  return { app, backend };
}

const looks = (backend: FakeBackend) => backend.calls.filter((call) => call === 'memory_stats').length;

test('memory is looked at while somebody watches, and no longer', async () => {
  vi.useFakeTimers();
  const { app, backend } = await start();
  expect(looks(backend)).toBe(0);
  const end = app.memory.watch();
  await vi.advanceTimersByTimeAsync(5000);
  expect(looks(backend)).toBe(3);
  end();
  await vi.advanceTimersByTimeAsync(10_000);
  expect(looks(backend)).toBe(3);
});

test('a slow answer is waited for and never asked twice', async () => {
  vi.useFakeTimers();
  const { app, backend } = await start();
  const ask = vi.spyOn(backend, 'memoryStats').mockImplementation(() => new Promise(() => undefined));
  const end = app.memory.watch();
  await vi.advanceTimersByTimeAsync(20_000);
  expect(ask).toHaveBeenCalledTimes(1);
  end();
});

test('memory is given back, and the next message brings the model again', async () => {
  const { app, backend } = await start('empty,fast');
  app.draft = 'brief';
  await app.send();
  await app.memory.refresh();
  expect(app.memory.uses.map((use) => use.name)).toEqual(['In use by a reply', 'Kept warm', 'Weights', 'Scratch', 'Reprise itself', 'Other programs', 'Free']);
  await app.memory.release();
  expect(app.memory.freed).toBeGreaterThan(144_000_000);
  expect(app.memory.uses.map((use) => use.name)).toEqual(['Reprise itself', 'Other programs', 'Free']);
  await vi.waitFor(() => expect(app.models.loaded).toBeNull());
  app.draft = 'and again, brief';
  await app.send();
  expect((await backend.memoryStats()).model).toBe('SmolLM2-135M-Instruct');
  await vi.waitFor(() => expect(app.models.loaded?.name).toBe('SmolLM2-135M-Instruct'));
});

test('the parts of the memory bar add up to all there is, and each has its figure in the list', async () => {
  for (const options of ['empty,fast', 'empty,fast,gpu']) {
    const { app, backend } = await start(options);
    app.draft = 'brief';
    await app.send();
    const stats = await backend.memoryStats();
    const crowded = { ...stats, others_bytes: 40e9, device: { ...stats.device, free_bytes: 0 } };
    const mapped = { ...stats, machine: { ...stats.machine!, available_bytes: 15e9, process_bytes: 1e6 }, others_bytes: 1e9 - 1e6 };
    const whole = { ...stats, pool: { ...stats.pool, reserved_bytes: 2e9 } };
    for (const said of [stats, crowded, mapped, whole]) {
      const ask = vi.spyOn(backend, 'memoryStats').mockResolvedValue(said);
      await app.memory.refresh();
      expect(app.memory.uses.reduce((sum, use) => sum + use.bytes, 0)).toBe(options.includes('gpu') ? 12e9 : 16e9);
      expect(app.memory.uses.every((use) => use.bytes >= 0)).toBe(true);
      expect(app.memory.uses.some((use) => use.name === 'Set aside for conversations')).toBe(said === whole);
      ask.mockRestore();
    }
  }
  const { app } = await start('empty,fast');
  app.settingsOpen = true;
  render(Root, { app });
  const bar = await screen.findByTestId('memory-bar');
  const seen = app.memory.uses.filter((use) => use.bytes > 0).map((use) => use.tone);
  expect([...bar.children].map((part) => seen.find((tone) => part.classList.contains(tone)))).toEqual(seen);
  expect(screen.getByTestId('memory-uses').children.length).toBe(app.memory.uses.length);
});

test('memory that went without our doing is noticed', async () => {
  const { app, backend } = await start();
  await app.memory.refresh();
  await backend.releaseMemory();
  await app.memory.refresh();
  await vi.waitFor(() => expect(app.models.loaded).toBeNull());
});

test('limits are kept, and what is refused is said and not shown', async () => {
  const { app } = await start();
  const end = app.memory.watch();
  await vi.waitFor(() => expect(app.memory.limits?.idle_minutes).toBe(15));
  await app.memory.setLimits({ pool_bytes: 1e9, idle_minutes: null });
  expect(app.memory.limits).toEqual({ pool_bytes: 1e9, host_bytes: null, disk_bytes: null, idle_minutes: null, kv: 'q8', device: 'auto' });
  await app.memory.setLimits({ disk_bytes: 5 });
  expect(app.memory.problem?.detail).toContain('at least 16 MiB');
  expect(app.memory.limits?.disk_bytes).toBeNull();
  end();
});

test('the panel tells memory in words and numbers, and frees it', async () => {
  const { app } = await start();
  render(Root, { app });
  await fireEvent.click(screen.getAllByTestId('conversation-item')[0]);
  await waitFor(() => expect(app.open?.loaded).toBe(true));
  await fireEvent.click(screen.getByTestId('settings-open'));
  const legend = await screen.findByRole('list', { name: 'What memory is used for' });
  const lines = () => [...legend.children].map((line) => line.textContent?.trim().replace(/\s+/g, ' '));
  expect(lines()).toContain('Weights145 MB');
  await fireEvent.change(screen.getByLabelText('Free it when idle for'), { target: { value: 'never' } });
  await waitFor(() => expect(app.memory.limits?.idle_minutes).toBeNull());
  await fireEvent.click(screen.getByTestId('release-memory'));
  await screen.findByText(/given back/);
  expect(lines().some((line) => line?.startsWith('Weights'))).toBe(false);
  expect(screen.getByTestId<HTMLButtonElement>('release-memory').disabled).toBe(true);
  await fireEvent.change(screen.getByLabelText('Cache format'), { target: { value: 'q4' } });
  await waitFor(() => expect(app.memory.limits?.kv).toBe('q4'));
});

test('a model can take its whole context at once', async () => {
  const { app, backend } = await start();
  await app.memory.refresh();
  const model = app.memory.stats!.model!;
  const taken = async () => (await backend.memoryStats()).pool.reserved_bytes;
  expect(await taken()).toBeLessThan(90e6);
  await app.memory.reserve(true);
  expect(app.memory.stats?.reserves_context).toBe(true);
  expect(await taken()).toBeGreaterThan(90e6);
  expect((await backend.planModel(model, null)).reserved_bytes).toBeGreaterThan(90e6);
});

test('the list of models says what each would take', async () => {
  const { app } = await start();
  render(Root, { app });
  await fireEvent.click(screen.getByTestId('model-picker'));
  const lines = await screen.findAllByTestId('model-plan');
  expect(lines.map((line) => line.textContent)).toEqual([
    '484\u00a0MB weights + 100\u00a0MB for 8\u00a0192 tokens · fits',
    '145\u00a0MB weights + 100\u00a0MB for 8\u00a0192 tokens · fits',
  ]);
});

test('a plan that does not fit says what does', async () => {
  const { backend } = await start();
  const plan = await backend.planModel('Qwen3-0.6B', 8192);
  const line = (change: Partial<MemoryPlan>) => planLine({ ...plan, ...change }).split(' · ')[1];
  expect(line({ verdict: { verdict: 'needs', needed_bytes: 12e9 }, longest_context_tokens: 4096 })).toBe('needs 12.0\u00a0GB, 4\u00a0096 tokens fit');
  expect(line({ verdict: { verdict: 'needs', needed_bytes: 12e9 }, longest_context_tokens: 0 })).toBe('needs 12.0\u00a0GB');
  expect(line({ verdict: { verdict: 'fits_with', format: 'q8' } })).toBe('fits with q8');
  expect(line({ verdict: { verdict: 'unknown' } })).toContain('does not say');
  const offload = { device_layers: 12, num_layers: 30, needed_bytes: 9e9, device_weights_bytes: 1e9, pool_bytes: 1e9 };
  expect(line({ offload })).toBe('the GPU computes 12 of 30 layers, the CPU the rest');
  expect(line({ offload: { ...offload, device_layers: 0 } })).toBe('no room on the GPU, computed on the CPU');
});

test('what computes is said, and why it is not a GPU; where there is one it can be chosen', async () => {
  const { app } = await start('empty,fast');
  app.settingsOpen = true;
  render(Root, { app });
  await waitFor(() => expect(screen.getByTestId('device').textContent).toContain('Computed on the CPU: no NVIDIA driver is installed'));
  expect(screen.queryByLabelText('Compute on')).toBeNull();
});

test('a GPU is chosen, and its memory is what is shown', async () => {
  const { app, backend } = await start('empty,fast,gpu');
  app.settingsOpen = true;
  render(Root, { app });
  await waitFor(() => expect(screen.getByTestId('device').textContent).toContain('Computed on NVIDIA GeForce RTX 4070, in its memory'));
  expect(screen.getByText('12.0 GB of memory on NVIDIA GeForce RTX 4070')).toBeTruthy();
  const places = () => [...screen.getByTestId('places').children].map((line) => line.textContent?.trim().replace(/\s+/g, ' '));
  expect(places()[1]).toBe('In memory beside it 250 MB of 2.8 GB');
  expect(places().length).toBe(3);
  await fireEvent.change(screen.getByLabelText(/Beside the GPU/), { target: { value: '0' } });
  await waitFor(() => expect(places().map((line) => line?.slice(0, 7))).toEqual(['In the ', 'On disk']));
  expect((await backend.memoryLimits()).host_bytes).toBe(0);
  await fireEvent.change(screen.getByLabelText('Compute on'), { target: { value: 'cpu' } });
  expect((await backend.memoryLimits()).device).toBe('cpu');
  app.draft = 'brief';
  await app.send();
  await app.memory.refresh();
  await waitFor(() => expect(screen.getByTestId('device').textContent?.trim()).toBe('Computed on the CPU'));
});

test('a GPU whose memory others have filled is said to be slow', async () => {
  const { app, backend } = await start('empty,fast,gpu');
  const stats = await backend.memoryStats();
  vi.spyOn(backend, 'memoryStats').mockResolvedValue({ ...stats, device: { ...stats.device, note: 'other programs have filled it' } });
  app.settingsOpen = true;
  render(Root, { app });
  await waitFor(() => expect(screen.getByTestId('device').textContent).toContain('in its memory: other programs have filled it'));
});
