// Measures the time of one key in a draft of 300 kB over the fake: `node tests/browser/typing.mjs`. A measurement, not a test.
import { launch, serve } from './server.mjs';

const server = await serve();
const browser = await launch();
const page = await browser.newPage();
try {
  await page.goto(`${server.url}?fake=fast`);
  await page.locator('[data-testid="composer"]').waitFor();
  const line = 'Bread needs salt, water and time, and an oven that is hot enough for it. ';
  for (const [name, text] of [
    ['lines', Array.from({ length: 4100 }, () => line).join('\n')],
    ['one line', line.repeat(4100)],
  ]) {
    const field = page.locator('[data-testid="composer"]');
    await field.evaluate((node, text) => {
      node.value = text;
      node.dispatchEvent(new InputEvent('input', { bubbles: true }));
      node.focus();
      node.setSelectionRange(text.length, text.length);
    }, text);
    await page.waitForTimeout(3000);
    const times = await field.evaluate(async (node) => {
      const times = [];
      for (let key = 0; key < 60; key += 1) {
        const began = performance.now();
        document.execCommand('insertText', false, 'x');
        // Forces the layout that the next frame would do.
        node.getBoundingClientRect();
        document.body.offsetHeight;
        times.push(performance.now() - began);
        await new Promise((resolve) => setTimeout(resolve, 30));
      }
      return times.sort((a, b) => a - b);
    });
    console.log(name, 'median', times[30].toFixed(1), 'ms, 9 of 10 under', times[54].toFixed(1), 'ms, most', times[59].toFixed(1), 'ms');
  }
} finally {
  await browser.close();
  await server.close();
}
