// How the window behaves as a window of the desktop does: what waits, what lies where, what is dropped on it, its own menus.
import assert from 'node:assert/strict';
import { finished, focused, id, open, replies, send, users } from './steps.mjs';

export const manners = {
  'Enter during a reply queues, says so, and the message goes when the reply ends': {
    fake: 'rate:150',
    viewport: { width: 1180, height: 780 },
    async run(page) {
      await open(page);
      const before = await users(page).count();
      await send(page, 'Tell me about bread.');
      await page.locator(`${id('message')}[data-state="generating"]`).waitFor();
      assert.match(await page.locator(id('keys')).innerText(), /Enter queues/);
      await send(page, 'And in one word, brief?');
      await send(page, 'Given up.');
      await page.locator(id('queue')).getByText('Queued: sent when the reply before ends').waitFor();
      assert.equal(await page.locator(id('composer')).inputValue(), '');
      await page.locator(id('queued-remove')).last().click();
      await page.locator(id('queue')).getByText('Queued: sent when this reply ends').waitFor();
      await page.waitForFunction((n) => document.querySelectorAll('[data-testid="message"][data-role="user"]').length === n, before + 2, { timeout: 30_000 });
      await finished(page);
      assert.equal(await page.locator(id('queue')).count(), 0);
      assert.match(await users(page).last().innerText(), /And in one word/);
      assert.match(await page.locator(id('keys')).innerText(), /Enter sends/);
      assert.equal(await replies(page).last().getAttribute('data-state'), 'complete');
      assert.equal(await focused(page), 'composer');
    },
  },
};
