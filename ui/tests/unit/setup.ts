import { afterAll, vi } from 'vitest';

// What happy-dom lacks.
if (!('ResizeObserver' in globalThis)) {
  vi.stubGlobal('ResizeObserver', class { observe() {} unobserve() {} disconnect() {} });
}
if (!window.matchMedia) {
  vi.stubGlobal('matchMedia', () => ({ matches: false, addEventListener() {}, removeEventListener() {} }));
}

// What a test leaves running, a turn of the fake among it, ends with its file: later there is no document.
const started = new Set<number>();
function noting<F extends typeof setTimeout | typeof setInterval>(start: F): F {
  const noted = (run: () => void, ms?: number, ...rest: unknown[]) => {
    const timer = start(run, ms, ...rest) as unknown as number;
    started.add(timer);
    return timer;
  };
  return Object.assign(noted, start) as F;
}
vi.stubGlobal('setTimeout', noting(setTimeout));
vi.stubGlobal('setInterval', noting(setInterval));
afterAll(() => started.forEach((timer) => clearTimeout(timer)));
