// Runs the contract in the page of the real window. The test builds this file and injects it: it is no part of the application.
// The test polls `__contract`.
import { tauriBackend } from '../../src/backend/tauri';
import { contract } from './contract';
import type { Start } from './harness';

const LONGEST_MS = 120_000;

interface Outcome {
  name: string;
  /** The reason of a failure; null if the scenario holds. */
  problem: string | null;
  ms: number;
}

interface Progress {
  running: string | null;
  outcomes: Outcome[];
  done: boolean;
}

declare global {
  var __contract: Progress;
  var __runContract: (start: Start, only: string) => void;
}

globalThis.__runContract = (start, only) => {
  const progress: Progress = { running: null, outcomes: [], done: false };
  globalThis.__contract = progress;
  void runAll(start, only, progress);
};

async function runAll(start: Start, only: string, progress: Progress): Promise<void> {
  const backend = tauriBackend();
  for (const scenario of contract) {
    if (scenario.start !== start || !scenario.name.includes(only)) continue;
    progress.running = scenario.name;
    const began = performance.now();
    let late: ReturnType<typeof setTimeout> | undefined;
    const deadline = new Promise<never>((_, reject) => {
      late = setTimeout(() => reject(new Error('it does not end')), LONGEST_MS);
    });
    const problem = await Promise.race([scenario.run(backend), deadline]).then(() => null, describe);
    clearTimeout(late);
    progress.outcomes.push({ name: scenario.name, problem, ms: performance.now() - began });
  }
  progress.running = null;
  progress.done = true;
}

function describe(cause: unknown): string {
  return cause instanceof Error ? cause.message : JSON.stringify(cause);
}
