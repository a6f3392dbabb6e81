import { readFileSync } from 'node:fs';
import { join } from 'node:path';

/** Reads test cases that are shared with the tests of the store. */
export function fixture<T>(name: string): T[] {
  return JSON.parse(readFileSync(join(import.meta.dirname, `../../../src-tauri/store/tests/fixtures/${name}.json`), 'utf8'));
}
