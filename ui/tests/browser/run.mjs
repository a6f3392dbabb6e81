// Drives the built interface in Chromium against the fake backend, then takes the pictures.
// Arguments: words that the names of the scenarios to run contain.
import { access } from './access.mjs';
import { hands } from './hands.mjs';
import { manners } from './manners.mjs';
import { scenarios } from './scenarios.mjs';
import { launch, serve } from './server.mjs';
import { takeShots } from './shots.mjs';

const DEADLINE_MS = 10 * 60_000;
const only = process.argv.slice(2);

setTimeout(() => {
  console.error('the browser tests took too long');
  process.exit(1);
}, DEADLINE_MS).unref();

const server = await serve();
const browser = await launch();
let [passed, failed] = [0, 0];
try {
  for (const [name, scenario] of Object.entries({ ...scenarios, ...hands, ...manners, ...access })) {
    if (only.length && !only.some((word) => name.includes(word))) continue;
    const problem = await attempt(scenario);
    console.log(`${problem ? 'FAILED' : 'ok    '} ${name}`);
    if (problem) console.error(problem);
    if (problem) failed += 1;
    else passed += 1;
  }
  if (!only.length) {
    await takeShots(browser, server.url);
    console.log('ok     pictures in test-results');
  }
} finally {
  await browser.close();
  await server.close();
}
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);

async function attempt({ fake, run, viewport = { width: 1200, height: 820 }, colorScheme = 'light', forcedColors = 'none' }) {
  const context = await browser.newContext({ viewport, colorScheme, forcedColors, reducedMotion: 'reduce' });
  const page = await context.newPage();
  page.setDefaultTimeout(10_000);
  const errors = [];
  const requests = [];
  page.on('pageerror', (error) => errors.push(String(error)));
  page.on('console', (message) => message.type() === 'error' && errors.push(message.text()));
  page.on('request', (request) => requests.push(request.url()));
  try {
    await page.goto(`${server.url}?fake=${fake}`);
    await page.locator('[data-testid="composer"], [data-testid="unlock-page"]').first().waitFor();
    await page.waitForTimeout(60);
    await run(page, { requests });
    if (errors.length) throw new Error(`errors on the page:\n${errors.join('\n')}`);
    const strange = requests.filter((url) => !url.startsWith(server.url) && !url.startsWith('blob:') && !url.startsWith('data:'));
    if (strange.length) throw new Error(`requests beyond the page:\n${strange.join('\n')}`);
    return null;
  } catch (error) {
    await page.screenshot({ path: new URL('../../test-results/failure.png', import.meta.url).pathname }).catch(() => undefined);
    return error;
  } finally {
    await context.close();
  }
}
