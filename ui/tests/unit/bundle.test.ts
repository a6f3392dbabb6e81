import { execFileSync } from 'node:child_process';
import { expect, test } from 'vitest';

/** Prints the modules of a build in the mode of its argument. A separate process, because vitest does not run in production mode. */
const BUILD = `
import { build } from 'vite';
const { output } = await build({ mode: process.argv[1], logLevel: 'silent', build: { write: false } });
console.log(JSON.stringify(output.flatMap((chunk) => (chunk.type === 'chunk' ? Object.keys(chunk.modules) : []))));
`;

function modules(mode: string): string[] {
  const env = { ...process.env, NODE_ENV: undefined, VITEST: undefined };
  return JSON.parse(execFileSync(process.execPath, ['--input-type=module', '-e', BUILD, mode], { env, encoding: 'utf8' })) as string[];
}

const isFake = (module: string) => module.includes('/src/backend/fake/');

test('what is shipped holds no backend in memory, and what a browser tests does', () => {
  const shipped = modules('production');
  expect(shipped.some((module) => module.includes('/src/backend/tauri'))).toBe(true);
  expect(shipped.filter(isFake)).toEqual([]);
  expect(modules('fake').some(isFake)).toBe(true);
}, 120_000);
