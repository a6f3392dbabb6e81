import { readFileSync } from 'node:fs';
import { join } from 'node:path';

/** Cases that the history is tested with, too. */
export function fixture<T>(name: string): T[] {
  return JSON.parse(readFileSync(join(import.meta.dirname, `../../../src-tauri/store/tests/fixtures/${name}.json`), 'utf8'));
}
