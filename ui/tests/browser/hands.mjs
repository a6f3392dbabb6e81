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
    fake: 'rate:120',
    async run(page) {
      await open(page);
      await send(page, 'Tell me about bread.');
      await page.locator('.prose p').first().click({ clickCount: 3 });
      const marked = await page.evaluate(() => getSelection().toString());
      assert.ok(marked.length > 40);
      // As when the message that had the focus is drawn no more.
      await page.evaluate(() => document.activeElement.blur());
      assert.equal(await replies(page).last().getAttribute('data-state'), 'generating');
      await finished(page);
      await page.waitForTimeout(60);
      assert.equal(await page.evaluate(() => getSelection().toString()), marked);
    },
  },

  'a reply can be marked, scrolled and copied from while it is written': {
    fake: 'rate:150,context:100000',
    async run(page) {
      await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
      await open(page);
      await send(page, 'An endless program, please.');
      const pre = page.locator('[data-state="generating"] pre');
      await pre.waitFor();
      await page.waitForFunction(() => (document.querySelector('[data-state="generating"] pre')?.textContent ?? '').length > 1400);
      await page.locator(id('messages')).hover();
      await page.mouse.wheel(0, -300);
      await pre.evaluate((element) => {
        element.scrollLeft = 60;
        const [from, to] = [...element.querySelectorAll('.hljs-keyword')];
        getSelection().setBaseAndExtent(from.firstChild, 0, to.firstChild, to.textContent.length);
      });
      const marked = await page.evaluate(() => getSelection().toString());
      assert.ok(marked.length > 4, marked);
      const before = (await pre.innerText()).length;
      await page.waitForTimeout(500);
      assert.ok((await pre.innerText()).length > before, 'it is still written');
      assert.equal(await page.evaluate(() => getSelection().toString()), marked);
      assert.equal(await pre.evaluate((element) => element.scrollLeft), 60);
      const copy = page.locator('[data-state="generating"] [data-copy]');
      const { x, y } = await copy.evaluate((element) => {
        element.scrollIntoView({ block: 'center' });
        return element.getBoundingClientRect().toJSON();
      });
      // A press as long as a person's, over several drawings.
      await page.mouse.move(x + 8, y + 8);
      await page.mouse.down();
      await page.waitForTimeout(180);
      await page.mouse.up();
      await copy.getByText('Copied').waitFor({ timeout: 1000 });
      assert.match(await page.evaluate(() => navigator.clipboard.readText()), /^def loaf_0/);
    },
  },

  'long code is folded and long lines wrap by keyboard, and nothing jumps': {
    fake: '',
    async run(page) {
      await open(page);
      await page.locator(id('edit')).last().click();
      const lines = Array.from({ length: 60 }, (_, at) => `let line_${at} = ${'word + '.repeat(at === 0 ? 40 : 2)}end;`);
      await page.locator(id('edit-text')).fill(`See:\n\n\`\`\`js\n${lines.join('\n')}\n\`\`\``);
      await page.locator(id('edit-save')).click();
      const block = page.locator('.code.folded').last();
      await block.waitFor();
      const all = block.locator('[data-unfold]');
      assert.equal(await all.innerText(), 'Show all 60 lines');
      const height = () => page.locator('.code').last().evaluate((code) => code.getBoundingClientRect().height);
      assert.ok((await height()) < 520, `${await height()}`);
      const pre = page.locator('.code pre').last();
      assert.ok(await pre.evaluate((element) => element.scrollWidth > element.clientWidth + 40));
      await page.locator('.code [data-wrap]').last().focus();
      await page.keyboard.press('Space');
      assert.ok(await pre.evaluate((element) => element.scrollWidth <= element.clientWidth), 'it wraps');
      const top = () => page.locator('.code').last().evaluate((code) => code.getBoundingClientRect().top);
      await all.focus();
      await page.waitForTimeout(100);
      const before = await top();
      await page.keyboard.press('Enter');
      await page.locator('.code').last().getByText('Show less').waitFor();
      await page.waitForTimeout(100);
      assert.ok((await height()) > 1000);
      assert.ok(Math.abs((await top()) - before) < 2, `from ${before} to ${await top()}`);
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

  'what is typed or pasted goes into the composer wherever the focus is': {
    fake: '',
    async run(page) {
      await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
      await open(page);
      await page.locator('.prose p').first().click();
      assert.notEqual(await focused(page), 'composer');
      await page.keyboard.type('hello');
      assert.equal(await page.locator(id('composer')).inputValue(), 'hello');
      await page.evaluate(() => navigator.clipboard.writeText(' there'));
      await page.locator(id('settings-open')).focus();
      await page.keyboard.press('Control+v');
      assert.equal(await page.locator(id('composer')).inputValue(), 'hello there');
      await page.locator(id('model-picker')).click();
      await page.keyboard.type('x');
      await page.keyboard.press('Escape');
      assert.equal(await page.locator(id('composer')).inputValue(), 'hello there', 'a menu keeps its keys');
    },
  },

  'without a model words wait in the composer and nothing is begun': {
    fake: 'no-model,empty',
    async run(page) {
      await send(page, 'Hello there');
      await page.waitForTimeout(100);
      assert.equal(await focused(page), 'model-path');
      assert.equal(await page.locator(id('composer')).inputValue(), 'Hello there');
      assert.equal(await page.locator(id('conversation-item')).count(), 0);
      await page.keyboard.type('/models/tiny.gguf');
      await page.keyboard.press('Enter');
      await page.getByRole('button', { name: 'tiny', exact: true }).waitFor();
      assert.equal(await focused(page), 'composer');
      await page.keyboard.press('Enter');
      // The page is named once its title has come.
      await page.getByRole('region', { name: 'Hello there' }).waitFor();
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
