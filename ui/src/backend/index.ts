import type { Backend } from './backend';
import { insideTauri, tauriBackend } from './tauri';

export type { Backend, OnTurnEvent } from './backend';

/** The fake backend is bundled into the development server, the unit tests and the browser tests only. */
const HOLDS_FAKE = import.meta.env.DEV || import.meta.env.MODE === 'fake';

/** The shell's backend; in a build with the fake, the fake when there is no shell or the address contains `?fake=…`. */
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
