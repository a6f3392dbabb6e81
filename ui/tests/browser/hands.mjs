// What hands do to a window: clicks that come twice, keys that are pressed in the wrong place, a focus that must not be lost.
import assert from 'node:assert/strict';
import { finished, focused, id, open, replies, send, users } from './steps.mjs';

export const hands = {
  'a double click on Send sends once and stops nothing': {
    fake: 'empty,rate:60',
    async run(page) {
      await page.locator(id('composer')).fill('Tell me about bread at length.');
      const { x, y } = await page.locator(id('send')).boundingBox();
      await page.mouse.dblclick(x + 12, y + 12, { delay: 25 });
      await page.waitForTimeout(500);
      assert.equal(await replies(page).count(), 1);
      assert.equal(await replies(page).last().getAttribute('data-state'), 'generating');
      await page.locator(id('stop')).click();
      await page.locator(`${id('message')}[data-state="stopped"]`).waitFor();
    },
  },

  'the focus is never lost': {
    fake: 'fast',
    async run(page) {
      await open(page);
      const after = async (what, expected) => {
        await page.waitForTimeout(60);
        assert.equal(await focused(page), expected, what);
      };
      await page.locator(id('settings-open')).click();
      await page.getByRole('complementary', { name: 'Settings' }).getByLabel('Close', { exact: true }).click();
      await after('settings closed', 'composer');
      await page.locator(id('model-picker')).click();
      await page.locator(id('model-item')).last().press('Enter');
      await page.locator(id('model-item')).first().waitFor({ state: 'detached' });
      await after('a model chosen', 'model-picker');
      await page.locator(id('export')).click();
      await page.keyboard.press('Enter');
      await after('exported', 'export');
      await page.locator(id('branch-prev')).press('Enter');
      await after('turned to the first branch', 'branch-next');
      await page.keyboard.press('ArrowRight');
      await after('turned back', 'branch-prev');
      assert.equal(await page.locator(id('branch-count')).innerText(), '2/2');
      await users(page).last().locator(id('edit')).press('Enter');
      await page.locator(id('edit-cancel')).click();
      await after('an edit given up', 'composer');
      await users(page).last().locator(id('edit')).press('Enter');
      await page.keyboard.type(' Be brief.');
      await page.keyboard.press('Enter');
      await after('an edit sent', 'composer');
      await finished(page);
      await replies(page).last().locator(id('regenerate')).press('Enter');
      await finished(page);
      await after('a reply asked for again', 'composer');
      await page.keyboard.press('Control+k');
      await page.keyboard.press('Control+b');
      await after('the sidebar hidden', 'composer');
    },
  },

  'a text that is marked stays marked when a reply ends': {
    fake: 'rate:200',
    async run(page) {
      await open(page);
      await send(page, 'And rye, brief?');
      await page.locator('.prose p').first().click({ clickCount: 3 });
      const marked = await page.evaluate(() => getSelection().toString());
      assert.ok(marked.length > 40);
      await finished(page);
      await page.waitForTimeout(60);
      assert.equal(await page.evaluate(() => getSelection().toString()), marked);
    },
  },

  'Escape in the search goes back to the page and stops no reply': {
    fake: 'rate:40',
    async run(page) {
      await open(page);
      await send(page, 'Tell me about bread at length.');
      await page.locator(`${id('message')}[data-state="generating"]`).waitFor();
      await page.keyboard.press('Control+k');
      await page.keyboard.press('Escape');
      assert.equal(await focused(page), 'composer');
      await page.keyboard.press('Control+k');
      await page.keyboard.type('oven');
      await page.locator(id('search-hit')).first().waitFor();
      await page.keyboard.press('ArrowDown');
      assert.equal(await focused(page), 'search-hit');
      await page.keyboard.press('Escape');
      assert.equal(await focused(page), 'composer');
      assert.equal(await page.locator(id('search')).inputValue(), '');
      assert.equal(await replies(page).last().getAttribute('data-state'), 'generating');
      await page.keyboard.press('Escape');
      await page.locator(`${id('message')}[data-state="stopped"]`).waitFor();
    },
  },

  'Enter in the search opens the first place found': {
    fake: '',
    async run(page) {
      await page.keyboard.press('Control+k');
      await page.keyboard.type('oven');
      await page.locator(id('search-hit')).first().waitFor();
      await page.keyboard.press('Enter');
      await page.locator(`${id('message')}:has-text("ordinary oven")`).waitFor();
    },
  },

  'an edit that is left without being sent is there again': {
    fake: 'fast',
    async run(page) {
      await open(page);
      const edit = users(page).last().locator(id('edit'));
      await edit.press('Enter');
      await page.keyboard.type(' Many words.');
      await page.keyboard.press('Escape');
      await users(page).last().locator(id('unsent')).click();
      assert.match(await page.locator(id('edit-text')).inputValue(), /Many words\.$/);
      await page.locator(id('edit-cancel')).click();
      assert.equal(await page.locator(id('unsent')).count(), 0);
      await page.locator(id('toast-action')).click();
      assert.match(await page.locator(id('edit-text')).inputValue(), /Many words\.$/);
    },
  },

  'a new conversation lies open in a narrow window': {
    fake: '',
    viewport: { width: 720, height: 700 },
    async run(page) {
      await page.keyboard.press('Control+b');
      await page.locator(id('search')).waitFor();
      await page.keyboard.press('Control+n');
      assert.equal(await page.locator(id('search')).count(), 0);
      assert.equal(await focused(page), 'composer');
    },
  },
};
