// Desktop behaviour of the window: the queue, overlays, dropped files, context menus.
import assert from 'node:assert/strict';
import { finished, focused, id, open, replies, send, users } from './steps.mjs';

export const manners = {
  'the right button and the menu key give menus of what they are at, inside the window': {
    fake: '',
    viewport: { width: 1180, height: 780 },
    async run(page) {
      await open(page);
      const menu = page.locator(id('context-menu'));
      const last = page.locator(id('conversation-item')).last();
      await last.click({ button: 'right' });
      await menu.waitFor();
      const box = await menu.boundingBox();
      assert.ok(box.y + box.height <= 780 && box.x >= 0, JSON.stringify(box));
      await menu.getByText('Rename').click();
      await page.getByLabel('Title', { exact: true }).fill('Named by its menu');
      await page.keyboard.press('Enter');
      await page.locator(id('conversation-item')).getByText('Named by its menu').waitFor();

      await replies(page).last().click({ button: 'right', position: { x: 5, y: 5 } });
      await menu.getByText('Edit').click();
      await page.locator('.editor textarea, textarea.editor').first().waitFor();
      await page.keyboard.press('Escape');

      const composer = page.locator(id('composer'));
      await composer.fill('some words');
      await composer.press('Shift+F10');
      await menu.waitFor();
      await page.keyboard.press('End');
      await page.keyboard.press('Enter');
      await menu.waitFor({ state: 'detached' });
      assert.equal(await focused(page), 'composer');
      assert.equal(await composer.evaluate((field) => field.value.slice(field.selectionStart, field.selectionEnd)), 'some words');
    },
  },

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

  'the settings stand beside the page at the usual size of the window, and cover nothing of it': {
    fake: '',
    viewport: { width: 1180, height: 780 },
    async run(page) {
      await open(page);
      await page.locator(id('settings-open')).click();
      await page.locator('.settings').waitFor();
      assert.equal(await page.locator('.veil').count(), 0);
      const { x: edge } = await page.locator('.settings').boundingBox();
      for (const [what, locator] of Object.entries({
        Send: page.locator(id('send')),
        meter: page.locator(id('context-meter')),
        picker: page.locator(id('model-picker')),
        export: page.locator(id('export')),
        text: page.locator('.prose p').first(),
      })) {
        const { x, width } = await locator.boundingBox();
        assert.ok(x + width <= edge, `${what} ends at ${x + width}, the panel begins at ${edge}`);
      }
    },
  },

  'in a narrower window the settings lie over a veil, which closes them, and the focus comes home': {
    fake: '',
    viewport: { width: 700, height: 700 },
    async run(page) {
      await page.keyboard.press('Control+,');
      const panel = page.locator('.settings');
      await panel.waitFor();
      assert.equal(await page.locator('main').evaluate((main) => main.inert), true);
      await page.mouse.click(40, 400);
      await panel.waitFor({ state: 'detached' });
      assert.equal(await focused(page), 'composer');
      await page.keyboard.press('Control+,');
      await panel.waitFor();
      await page.keyboard.press('Escape');
      await panel.waitFor({ state: 'detached' });
      await page.waitForTimeout(60);
      assert.equal(await focused(page), 'composer');
    },
  },

  'text is larger and smaller by keys, by the wheel and in the settings': {
    fake: '',
    async run(page) {
      await open(page);
      await page.keyboard.press('Control+,');
      const says = (percent) => page.locator(id('zoom')).getByText(percent).waitFor();
      await page.keyboard.press('Control+=');
      await page.keyboard.press('Control++');
      await says('125');
      await page.keyboard.press('Control+-');
      await says('110');
      await page.keyboard.press('Control+0');
      await says('100');
      await page.locator(id('zoom-in')).click();
      await says('110');
      await page.keyboard.down('Control');
      await page.mouse.wheel(0, 100);
      await says('100');
      await page.mouse.wheel(0, -100);
      await says('110');
      await page.keyboard.up('Control');
    },
  },

  'at twice the text the usual window holds the page, the editor and the settings': {
    fake: '',
    // A window of 1180 × 780 at a zoom of 200 %.
    viewport: { width: 590, height: 390 },
    async run(page) {
      await page.keyboard.press('Control+b');
      await open(page);
      await users(page).last().locator(id('edit')).press('Enter');
      await inView(page, id('edit-save'));
      await page.keyboard.press('Escape');
      await page.keyboard.press('Control+,');
      await page.locator('.settings').waitFor();
      const over = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth);
      assert.equal(over, false);
    },
  },

  'a long reply that is edited shows its buttons, and the composer steps aside': {
    fake: 'fast',
    viewport: { width: 1180, height: 780 },
    async run(page) {
      await open(page);
      await send(page, 'An essay on bread, at length.');
      await finished(page);
      await replies(page).last().locator(id('edit')).press('Enter');
      await page.waitForTimeout(200);
      await inView(page, id('edit-save'));
      await inView(page, id('edit-cost'));
      assert.equal(await page.locator(id('to-end')).count(), 0);
      assert.equal(await page.locator(id('send')).isVisible(), false);
      await page.keyboard.type(' And a line more.\n\n\n\n\nEnd.');
      await page.waitForTimeout(200);
      await inView(page, id('edit-save'));
      // Scrolling inside the message keeps its buttons visible.
      await page.locator(id('messages')).evaluate((list) => (list.scrollTop -= 120));
      await page.waitForTimeout(100);
      await inView(page, id('edit-save'));
      await page.screenshot({ path: 'test-results/editor.png' });
    },
  },

  'the button to the end lies beside the text, and a message that was refused is seen whole': {
    fake: 'context-full',
    viewport: { width: 1180, height: 780 },
    async run(page) {
      await open(page);
      await page.locator(id('messages')).evaluate((list) => (list.scrollTop = 0));
      const button = page.locator(id('to-end'));
      if (await button.count()) {
        const { x } = await button.boundingBox();
        const { x: left, width } = await page.locator('.prose p').first().boundingBox();
        assert.ok(x >= left + width, `at ${x}, the text ends at ${left + width}`);
      }
      await send(page, 'One more, '.repeat(60));
      await page.locator(id('problem')).waitFor();
      await page.waitForTimeout(200);
      await inView(page, `${id('message')}:last-of-type ${id('regenerate')}`);
      const short = await page.locator(id('messages')).evaluate((list) => list.scrollHeight - list.clientHeight - list.scrollTop);
      assert.ok(short <= 2, `${short} short of the end`);
    },
  },

  'what is dropped or pasted as a file gets an answer': {
    fake: '',
    async run(page) {
      await open(page);
      const hand = (type, files) =>
        page.evaluate(([type, files]) => {
          const data = new DataTransfer();
          for (const [name, mime, text] of files) data.items.add(new File([text], name, { type: mime }));
          const init = { bubbles: true, cancelable: true };
          const event = type === 'paste' ? new ClipboardEvent(type, { ...init, clipboardData: data }) : new DragEvent(type, { ...init, dataTransfer: data });
          document.querySelector('[data-testid="messages"]').dispatchEvent(event);
        }, [type, files]);
      const text = ['notes.md', 'text/markdown', 'Some notes.'];
      await hand('dragover', [text]);
      await page.locator(id('drop')).waitFor();
      await hand('drop', [text, ['cat.png', 'image/png', 'x']]);
      await page.locator(id('drop')).waitFor({ state: 'detached' });
      await page.locator(id('toast')).getByText('Pictures cannot be read by this model').waitFor();
      assert.match(await page.locator(id('composer')).inputValue(), /notes\.md\n\n```md\nSome notes\.\n```/);
      await hand('paste', [['shot.png', 'image/png', 'x']]);
      assert.equal(await focused(page), 'composer');
    },
  },

  'a reply that would be written again in the middle dims what it leaves': {
    fake: '',
    async run(page) {
      await open(page);
      await replies(page).first().locator(id('regenerate')).focus();
      await page.waitForFunction(() => Number(getComputedStyle([...document.querySelectorAll('[data-testid="message"]')].at(-1)).opacity) < 1 || document.querySelectorAll('.message.left').length > 0);
      await page.locator(id('composer')).focus();
      assert.equal(await page.locator('.message.left').count(), 0);
    },
  },

  'the blank page offers to go on with what was said last': {
    fake: '',
    viewport: { width: 1180, height: 780 },
    async run(page) {
      await page.screenshot({ path: 'test-results/blank.png' });
      const first = page.locator(id('recent')).first();
      const title = await first.innerText();
      await first.click();
      await page.getByRole('region', { name: title }).waitFor();
      assert.equal(await focused(page), 'composer');
    },
  },
};

/** The whole element is inside the viewport and nothing covers it. */
async function inView(page, selector) {
  const seen = await page.locator(selector).last().evaluate((element) => {
    const { left, right, top, bottom } = element.getBoundingClientRect();
    const hit = (x, y) => {
      const on = document.elementFromPoint(x, y);
      return on !== null && (element.contains(on) || on.contains(element));
    };
    return { top, bottom, whole: top >= 0 && bottom <= innerHeight && hit((left + right) / 2, top + 2) && hit((left + right) / 2, bottom - 2) };
  });
  assert.ok(seen.whole, `${selector} is not in view: ${JSON.stringify(seen)}`);
}
