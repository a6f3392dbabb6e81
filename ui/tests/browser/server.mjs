// Builds the pages with the fake backend, serves them on loopback and starts Chromium; all of it ends with the tests.
import { chromium } from 'playwright-core';
import { build, preview } from 'vite';

/** Beside `dist`, the shipped build, which contains no fake. */
const PAGES = 'dist-fake';

export async function serve() {
  await build({ mode: 'fake', logLevel: 'error', build: { outDir: PAGES } });
  const server = await preview({ preview: { port: 0, strictPort: false }, build: { outDir: PAGES }, logLevel: 'error' });
  const { port } = server.httpServer.address();
  return { url: `http://127.0.0.1:${port}/`, close: () => server.close() };
}

export async function launch() {
  return await chromium.launch({
    executablePath: process.env.CHROMIUM || '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking'],
  });
}
