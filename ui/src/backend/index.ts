import type { Backend } from './backend';
import { insideTauri, tauriBackend } from './tauri';

export type { Backend, OnTurnEvent } from './backend';

/** The shell's backend inside the shell; anywhere else, or when the address asks with `?fake=…`, the one in memory. */
export async function openBackend(address: string): Promise<Backend> {
  const fake = new URL(address).searchParams.get('fake');
  if (insideTauri() && fake === null) return tauriBackend();
  const { FakeBackend } = await import('./fake/fake');
  return FakeBackend.fromOptions(fake ?? '');
}
