// Accessibility: axe over the main states in both themes, the list as one Tab stop, keyboard navigation between parts and messages,
// live region announcements of a reply, forced colours.
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { finished, focused, id, open, replies, send, sendAndWait, users } from './steps.mjs';

const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** Fails on every violation that axe rates serious or critical. */
async function judge(page, what) {
  if (!(await page.evaluate(() => 'axe' in window))) await page.evaluate(axe);
  const { found, passed } = await page.evaluate(async () => {
    // The fade under the header is a pseudo element; with it, axe judges no contrast in the page.
    const sheet = new CSSStyleSheet();
    sheet.replaceSync('*::before, *::after { content: none !important; }');
    document.adoptedStyleSheets = [sheet];
    const { violations, passes, incomplete } = await window.axe.run(document);
    const unjudged = incomplete.filter((rule) => rule.id === 'color-contrast').flatMap(({ nodes }) => nodes).length;
    const judged = passes.filter((rule) => rule.id === 'color-contrast').flatMap(({ nodes }) => nodes).length;
    if (unjudged > judged) violations.push({ id: `contrast of ${unjudged} texts not judged`, impact: 'serious', nodes: [] });
    document.adoptedStyleSheets = [];
    return { found: violations.map(({ id, impact, nodes }) => ({ id, impact, nodes: nodes.map(({ html, any }) => ({ html, any: any.map(({ message }) => ({ message })) })) })), passed: passes.map(({ id }) => id) };
  });
  assert.ok(passed.length > 15, `${what}: ${passed.join(' ')}`);
  const grave = found.filter(({ impact }) => impact === 'serious' || impact === 'critical');
  const told = grave.map(({ id: rule, nodes }) => `${rule}: ${nodes.slice(0, 3).map((node) => `${node.html.slice(0, 160)} ${node.any.map((check) => check.message).join(' ')}`).join('\n    ')}`);
  assert.deepEqual(told, [], `${what}:\n${told.join('\n')}`);
}

async function states(page) {
  const visit = async (fake) => {
    const url = new URL(page.url());
    await page.goto(`${url.origin}${url.pathname}?fake=${fake}`);
    await page.locator('[data-testid="composer"], [data-testid="unlock-page"]').first().waitFor();
    await page.waitForTimeout(60);
  };
  await judge(page, 'the blank page');
  for (const index of [0, 1, 2, 3]) {
    await open(page, index);
    await judge(page, `conversation ${index}`);
  }
  await open(page, 0);
  await users(page).first().locator(id('edit')).press('Enter');
  await page.locator(id('edit-text')).fill('Something else, please.');
  await page.waitForTimeout(300);
  await judge(page, 'an edit and what it leaves');
  await page.locator(id('edit-cancel')).click();
  await page.locator(id('settings-open')).click();
  await page.locator(id('release-memory')).waitFor();
  await judge(page, 'the settings');
  await page.keyboard.press('Escape');
  await page.locator(id('model-picker')).click();
  await page.locator(id('model-item')).first().waitFor();
  await judge(page, 'the models');
  await page.keyboard.press('Escape');
  await page.keyboard.press('Control+k');
  await page.keyboard.type('oven');
  await page.locator(id('search-hit')).first().waitFor();
  await judge(page, 'the search');
  await visit('rate:40');
  await open(page);
  await send(page, 'Tell me about bread at length.');
  await page.locator(`${id('message')}[data-state="generating"]`).waitFor();
  await page.waitForTimeout(400);
  await judge(page, 'a reply that is written');
  await visit('slow');
  await open(page);
  await send(page, `Please read this. ${'The oven is old and leaks steam. '.repeat(30)}`);
  await page.waitForTimeout(1200);
  await judge(page, 'a prompt that is read');
  await visit('no-model,empty');
  await judge(page, 'no model');
  await visit('fast,locked');
  await judge(page, 'the locked page');
}

export const access = {
  'axe finds nothing serious in the light theme': { fake: '', colorScheme: 'light', run: states },
  'axe finds nothing serious in the dark theme': { fake: '', colorScheme: 'dark', run: states },
  'axe finds nothing serious in a narrow window': {
    fake: '',
    viewport: { width: 640, height: 760 },
    async run(page) {
      await judge(page, 'the blank page');
      await page.keyboard.press('Control+b');
      await judge(page, 'the list over the page');
      await open(page);
      await judge(page, 'a conversation');
    },
  },

  'the list of conversations is one stop of the Tab key, and its arrows reach all of it': {
    fake: '',
    async run(page) {
      await open(page, 1);
      const items = page.locator(id('conversation-item'));
      assert.equal(await page.locator(`${id('conversation-item')}[tabindex="0"]`).count(), 1);
      assert.equal(await items.nth(1).getAttribute('tabindex'), '0');
      await page.keyboard.press('Control+k');
      await page.keyboard.press('Tab');
      assert.equal(await focused(page), 'conversation-item');
      await page.keyboard.press('ArrowDown');
      assert.equal(await items.nth(2).evaluate((item) => item === document.activeElement), true);
      await page.keyboard.press('ArrowRight');
      const name = await items.nth(2).innerText();
      assert.equal(await page.evaluate(() => document.activeElement.ariaLabel), `Rename ${name}`);
      await page.keyboard.press('ArrowRight');
      assert.equal(await page.evaluate(() => document.activeElement.ariaLabel), `Delete ${name}`);
      await page.keyboard.press('ArrowLeft');
      await page.keyboard.press('ArrowLeft');
      assert.equal(await items.nth(2).evaluate((item) => item === document.activeElement), true);
      await page.keyboard.press('Tab');
      assert.equal(await page.evaluate(() => document.activeElement.closest('nav')), null, 'the next stop is beyond the list');
      await page.keyboard.press('Shift+Tab');
      assert.equal(await items.nth(2).evaluate((item) => item === document.activeElement), true, 'the list remembers where one was');
    },
  },

  'F6 goes from part to part': {
    fake: '',
    async run(page) {
      await open(page);
      assert.equal(await focused(page), 'composer');
      await page.keyboard.press('F6');
      assert.equal(await focused(page), 'conversation-item');
      await page.keyboard.press('F6');
      assert.equal(await focused(page), 'messages');
      await page.keyboard.press('F6');
      assert.equal(await focused(page), 'composer');
      await page.keyboard.press('Shift+F6');
      assert.equal(await focused(page), 'messages');
      await page.keyboard.press('Control+b');
      await page.keyboard.press('F6');
      await page.keyboard.press('F6');
      assert.equal(await focused(page), 'messages', 'a part that is not shown is passed over');
    },
  },

  'Alt with an arrow goes from message to message, also to those that are not drawn': {
    fake: '',
    async run(page) {
      await open(page);
      const at = () => page.evaluate(() => Number(document.activeElement.ariaPosInSet));
      const size = await page.evaluate(() => Number(document.querySelector('article').ariaSetSize));
      await page.keyboard.press('Alt+ArrowUp');
      await page.waitForFunction((last) => Number(document.activeElement.ariaPosInSet) === last, size);
      for (let place = size - 1; place >= 1; place -= 1) {
        await page.keyboard.press('Alt+ArrowUp');
        await page.waitForFunction((wanted) => Number(document.activeElement.ariaPosInSet) === wanted, place);
      }
      await page.keyboard.press('Alt+ArrowUp');
      assert.equal(await at(), 1);
      await page.keyboard.press('Alt+ArrowDown');
      await page.waitForFunction(() => Number(document.activeElement.ariaPosInSet) === 2);
    },
  },

  'what is written is said: that it begins, its sentences, that it is there': {
    fake: 'empty,rate:80',
    async run(page) {
      await page.evaluate(() => {
        window.said = [];
        new MutationObserver((changes) => {
          for (const change of changes) for (const node of change.addedNodes) if (node.parentElement?.closest('[aria-live="polite"]')) window.said.push(node.textContent);
        }).observe(document, { childList: true, subtree: true });
      });
      await sendAndWait(page, 'How do I count words in Python code?');
      await page.waitForTimeout(100);
      const said = await page.evaluate(() => window.said.filter(Boolean));
      assert.equal(said.filter((line) => line === 'A reply is being written').length, 1, said.join('\n'));
      assert.equal(said.filter((line) => line === 'Reply finished').length, 1, said.join('\n'));
      assert.ok(said.some((line) => /^Code in python, \d+ lines\.$/.test(line)), said.join('\n'));
      assert.equal(said.some((line) => /[`*]|def /.test(line)), false, said.join('\n'));
    },
  },

  'a long prompt is told at quarters, and nothing speaks at every pause of an edit': {
    fake: 'slow',
    async run(page) {
      await open(page);
      await page.evaluate(() => {
        window.said = [];
        new MutationObserver((changes) => {
          for (const { target, addedNodes } of changes) {
            const element = target instanceof Element ? target : target.parentElement;
            if (element?.closest('[aria-live="polite"], [role="status"]')) window.said.push(addedNodes[0]?.textContent ?? element.textContent);
          }
        }).observe(document, { childList: true, characterData: true, subtree: true });
      });
      await send(page, `Please read this. ${'The oven is old and leaks steam. '.repeat(40)}`);
      await page.waitForFunction(() => window.said.some((line) => /^75 percent/.test(line)), undefined, { timeout: 20_000 });
      const figures = await page.evaluate(() => window.said.filter((line) => /\d/.test(line)));
      assert.deepEqual(figures, ['25 percent read', '50 percent read', '75 percent read'].slice(-figures.length));
      await page.keyboard.press('Escape');
      await finished(page);
      await page.evaluate(() => (window.said = []));
      await users(page).first().locator(id('edit')).press('Enter');
      for (const letter of 'abc') {
        await page.keyboard.type(letter);
        await page.waitForTimeout(350);
      }
      assert.deepEqual(await page.evaluate(() => window.said.filter(Boolean)), []);
      assert.equal(await page.locator(id('edit-save')).getAttribute('aria-describedby'), 'edit-cost');
    },
  },

  'every button in a list of messages says which message it means': {
    fake: '',
    async run(page) {
      await open(page);
      const names = await page.locator('article button').evaluateAll((buttons) => buttons.filter((button) => !button.closest('.prose')).map((button) => button.ariaLabel ?? button.textContent.trim()));
      const named = names.filter((name) => /^(Copy|Edit|Regenerate)/.test(name));
      assert.ok(named.length > 4);
      assert.equal(new Set(named).size, named.length, named.join(', '));
      assert.match(await replies(page).last().ariaSnapshot(), /Of \d+ tokens \d+ were reused/);
    },
  },

  'where the system gives the colours, nothing is told by a ground alone': {
    fake: '',
    forcedColors: 'active',
    async run(page) {
      await open(page);
      const border = (selector) => page.locator(selector).first().evaluate((element) => getComputedStyle(element).borderTopWidth + getComputedStyle(element).outlineWidth.replace(/.*/, (width) => (getComputedStyle(element).outlineStyle === 'none' ? '' : width)));
      for (const selector of [`${id('message')}[data-role="user"] .block`, `${id('conversation-item')}[aria-current="page"]`, id('warmth')]) {
        assert.notEqual(await border(selector), '0px', selector);
      }
      await page.locator(id('settings-open')).click();
      for (const selector of ['.settings .small-field', '#system-prompt']) assert.notEqual(await border(selector), '0px', selector);
    },
  },
};
