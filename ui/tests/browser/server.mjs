// The pages with the backend in memory, built anew and served on loopback, and a Chromium beside them; all end with the tests.
import { chromium } from 'playwright-core';
import { build, preview } from 'vite';

/** Beside `dist`, which is what is shipped and holds no such backend. */
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
