import type { Backend } from './backend';
import { insideTauri, tauriBackend } from './tauri';

export type { Backend, OnTurnEvent } from './backend';

/** The builds that hold the backend in memory: the development server, the unit tests, and the pages that a browser tests. */
const HOLDS_FAKE = import.meta.env.DEV || import.meta.env.MODE === 'fake';

/** The shell's backend. In a build that holds it, the one in memory outside the shell, or where the address asks with `?fake=…`. */
export async function openBackend(address: string): Promise<Backend> {
  if (HOLDS_FAKE) {
    const fake = new URL(address).searchParams.get('fake');
    if (!insideTauri() || fake !== null) {
      const { FakeBackend } = await import('./fake/fake');
      return FakeBackend.fromOptions(fake ?? '');
    }
  }
  return tauriBackend();
}
