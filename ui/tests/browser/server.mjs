// `vite preview` on loopback and a Chromium beside it; both end with the tests.
import { chromium } from 'playwright-core';
import { preview } from 'vite';

export async function serve() {
  const server = await preview({ preview: { port: 0, strictPort: false }, logLevel: 'error' });
  const { port } = server.httpServer.address();
  return { url: `http://127.0.0.1:${port}/`, close: () => server.close() };
}

export async function launch() {
  return await chromium.launch({
    executablePath: process.env.CHROMIUM || '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking'],
  });
}
