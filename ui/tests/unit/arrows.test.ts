import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const SRC = join(process.cwd(), 'src');

function importsOf(folder: string): { file: string; from: string }[] {
  const files = readdirSync(join(SRC, folder), { recursive: true, encoding: 'utf8' }).filter((name) => /\.(ts|svelte)$/.test(name));
  return files.flatMap((file) => {
    const text = readFileSync(join(SRC, folder, file), 'utf8');
    return [...text.matchAll(/from\s+['"]([^'"]+)['"]|import\(['"]([^'"]+)['"]\)/g)].map((match) => ({ file, from: match[1] ?? match[2] }));
  });
}

const naming = (folder: string, pattern: RegExp) => importsOf(folder).filter(({ from }) => pattern.test(from));

test('components draw: they know the state and nothing behind it', () => {
  expect(importsOf('components').length).toBeGreaterThan(50);
  expect(naming('components', /backend|tauri/)).toEqual([]);
});

test('state decides: it knows the interface of the backend, no component and not the shell', () => {
  expect(naming('state', /components|tauri|fake/)).toEqual([]);
});

test('the backend and the Markdown know nothing above them', () => {
  expect(naming('backend', /state|components|svelte/)).toEqual([]);
  expect(naming('markdown', /state|components|backend/)).toEqual([]);
});

test('only one file names the shell, and nothing is kept in webview storage', () => {
  const talking = naming('.', /@tauri-apps/).map(({ file }) => file);
  expect(new Set(talking)).toEqual(new Set([join('backend', 'tauri.ts')]));
  for (const file of readdirSync(SRC, { recursive: true, encoding: 'utf8' }).filter((name) => /\.(ts|svelte)$/.test(name))) {
    expect(readFileSync(join(SRC, file), 'utf8'), file).not.toMatch(/localStorage|sessionStorage|indexedDB|document\.cookie/);
  }
});
