// What a person does with the window, against the fake backend. Each scenario is named for its promise.
import assert from 'node:assert/strict';
import { anchor, finished, focused, id, numbers, open, position, replies, send, sendAndWait, users } from './steps.mjs';

export const scenarios = {
  'a locked window opens with its passphrase, and encryption is turned off in the settings': {
    fake: 'fast,locked',
    async run(page) {
      const field = page.locator(id('passphrase'));
      await field.waitFor();
      assert.equal(await page.locator(id('composer')).count(), 0);
      await field.fill('no idea');
      await page.keyboard.press('Enter');
      await page.getByRole('alert').getByText('This is not the passphrase').waitFor();
      await field.fill('open sesame');
      await page.keyboard.press('Enter');
      await open(page);
      await page.locator(id('settings-open')).click();
      const panel = page.locator(id('privacy'));
      await panel.getByText('Your passphrase unlocks them').waitFor();
      await panel.locator(id('privacy-ask-off')).click();
      await panel.locator(id('privacy-off')).click();
      await panel.getByText('kept on this disk as they are').waitFor();
      await panel.locator(id('privacy-ask-on')).waitFor();
    },
  },

  'memory is told live and given back, and the next message goes on': {
    fake: 'fast',
    async run(page) {
      await open(page);
      await sendAndWait(page, 'And what about rye? Be brief.');
      await page.locator(id('settings-open')).click();
      const panel = page.locator(id('memory'));
      await panel.locator(id('memory-uses')).getByText('Weights').waitFor();
      assert.match(await panel.innerText(), /Kept warm\s+\S+\s[kM]B/);
      const [bar, parts] = await panel.locator(id('memory-bar')).evaluate((bar) => [bar.clientWidth, [...bar.children].map((part) => part.getBoundingClientRect().width)]);
      assert.ok(parts.every((width) => width >= 2) && Math.abs(parts.reduce((sum, width) => sum + width + 2, -2) - bar) < 1, `${bar}: ${parts}`);
      await panel.locator(id('release-memory')).click();
      await panel.getByText('given back').waitFor();
      assert.equal(await panel.locator(id('memory-uses')).getByText('Weights').count(), 0);
      await sendAndWait(page, 'And oats, brief?');
      const { computed } = await numbers(page.locator(id('quiet-line')).last());
      assert.ok(computed < 30, `${computed} computed`);
      // Within two looks.
      await panel.locator(id('memory-uses')).getByText('Weights').waitFor();
    },
  },

  'a message is sent and its reply streams in': {
    fake: 'empty,rate:60',
    async run(page) {
      await send(page, 'How do I count words in Python code?');
      await page.locator(`${id('message')}[data-state="generating"]`).waitFor();
      assert.equal(await page.locator(id('composer')).inputValue(), '');
      const early = await replies(page).last().innerText();
      await page.waitForTimeout(500);
      const later = await replies(page).last().innerText();
      assert.ok(later.length > early.length, 'the reply grows');
      await finished(page);
      const line = page.locator(id('quiet-line')).last();
      assert.match(await line.innerText(), /computed · first token .+ · .+ tokens\/s/);
      const ruled = await line.evaluate((element) => [...element.children].some((part) => getComputedStyle(part).borderTopWidth !== '0px'));
      assert.equal(ruled, false, 'no lines are drawn through the text above it');
      assert.equal(await page.locator(id('conversation-item')).count(), 1);
      assert.match(await page.locator(id('conversation-item')).innerText(), /How do I count words/);
      assert.ok((await page.locator('.code .hljs-keyword').count()) > 0, 'code is highlighted');
    },
  },

  'a second message reuses all but what is new': {
    fake: 'empty,fast',
    async run(page) {
      await sendAndWait(page, 'Answer brief, in one word.');
      await sendAndWait(page, 'And again, brief.');
      const { resident, computed } = await numbers(page.locator(id('quiet-line')).last());
      assert.ok(resident > 10 && computed < 20, `${resident} reused, ${computed} computed`);
    },
  },

  'stop keeps what was shown, and continue goes on from there': {
    fake: 'empty,rate:40',
    async run(page) {
      await send(page, 'Tell me about bread.');
      await page.waitForFunction(() => (document.querySelector('[data-testid="reply-text"]')?.textContent ?? '').length > 40);
      await page.locator(id('stop')).click();
      await page.locator(`${id('message')}[data-state="stopped"]`).waitFor();
      const kept = (await page.locator(id('reply-text')).innerText()).trim();
      assert.ok(kept.length > 40);
      await page.locator(id('continue')).click();
      await page.waitForFunction((n) => document.querySelector('[data-testid="reply-text"]').textContent.length > n + 20, kept.length);
      assert.ok((await page.locator(id('reply-text')).innerText()).startsWith(kept.slice(0, 30)));
      assert.equal(await replies(page).count(), 1);
      await page.keyboard.press('Escape');
      await page.locator(`${id('message')}[data-state="stopped"]`).waitFor();
    },
  },

  'a long prompt shows how far it is read and can be stopped': {
    fake: 'slow,empty',
    async run(page) {
      await send(page, 'word '.repeat(400));
      await page.locator(id('prefill')).getByText(/reading .+ of .+ tokens/).waitFor();
      await page.locator(id('stop')).click();
      await page.locator(`${id('message')}[data-state="stopped"]`).waitFor({ timeout: 5000 });
      assert.equal(await page.locator(id('send')).count(), 1);
    },
  },

  'an edit shows its cost, becomes a branch, and costs its suffix': {
    fake: 'fast',
    async run(page) {
      await open(page);
      const last = users(page).last();
      await last.hover();
      await last.locator(id('edit')).click();
      const cost = page.locator(id('edit-cost'));
      await cost.getByText(/keeps .+ of .+ tokens/).waitFor();
      await page.locator(id('edit-text')).fill('My loaf is brief and flat.');
      await page.waitForTimeout(400);
      const keeps = Number(await cost.getAttribute('data-keeps'));
      const of = Number(await cost.getAttribute('data-of'));
      assert.ok(keeps > 100 && keeps < of, `${keeps} of ${of}`);
      await page.locator(id('edit-save')).click();
      await page.locator(id('edit-text')).waitFor({ state: 'detached' });
      await finished(page);
      const { resident, restored, computed } = await numbers(page.locator(id('quiet-line')).last());
      // Some of the new words may have been read ahead since.
      assert.ok(resident + restored >= keeps, 'what was promised was kept');
      assert.ok(resident + restored < keeps + 12, 'and what follows was not');
      assert.ok(computed < 30);
      assert.equal(await users(page).last().locator(id('branch-count')).innerText(), '2/2');
    },
  },

  'branches flip back and forth, each with what follows it': {
    fake: 'fast',
    async run(page) {
      await open(page);
      const count = page.locator(id('branch-count'));
      assert.equal(await count.innerText(), '2/2');
      assert.equal(await page.locator(id('message')).count(), 4);
      await page.locator(id('branch-prev')).click();
      assert.equal(await count.innerText(), '1/2');
      assert.equal(await page.locator(id('message')).count(), 2);
      assert.match(await replies(page).first().innerText(), /dry crust sets/);
      assert.equal(await page.locator(id('to-end')).count(), 0, 'all of it is in view');
      await page.locator(id('branch-next')).click();
      assert.equal(await page.locator(id('message')).count(), 4);
      await open(page, 1);
      await open(page, 0);
      assert.equal(await count.innerText(), '2/2');
    },
  },

  'regenerate writes a second reply beside the first': {
    fake: 'fast',
    async run(page) {
      await open(page, 1);
      await replies(page).first().hover();
      await replies(page).first().locator(id('regenerate')).click();
      await page.locator(id('branch-count')).getByText('2/2').waitFor();
      await finished(page);
      const { computed } = await numbers(page.locator(id('quiet-line')).last());
      assert.ok(computed <= 3, `${computed} computed`);
    },
  },

  'a reply can be edited into a sibling without a model running': {
    fake: '',
    async run(page) {
      await open(page, 1);
      await replies(page).first().hover();
      await replies(page).first().locator(id('edit')).click();
      await page.locator(id('edit-text')).fill('Shorter.');
      await page.locator(id('edit-save')).click();
      await page.locator(id('branch-count')).getByText('2/2').waitFor();
      assert.match(await replies(page).first().innerText(), /^Shorter\./);
      assert.equal(await page.locator(id('stop')).count(), 0);
    },
  },

  'search finds words in messages and opens the place': {
    fake: 'long',
    async run(page) {
      await page.locator(id('search')).fill('part 97');
      await page.locator(id('search-hit')).first().click();
      await page.locator(`${id('message')}:has-text("Question 97:")`).waitFor();
      await page.waitForTimeout(200);
      const message = page.locator(`${id('message')}:has-text("Question 97:")`);
      const box = await message.boundingBox();
      assert.ok(box.y > 0 && box.y < 300, `at ${box.y}`);
      // The match is visible: its message has the focus outline and its words are highlighted.
      assert.equal(await message.evaluate((element) => element === document.activeElement), true);
      assert.notEqual(await message.evaluate((element) => getComputedStyle(element).outlineStyle), 'none');
      const marked = () => page.evaluate(() => [...(CSS.highlights.get('found-here') ?? [])].map(String));
      await page.waitForFunction(() => (CSS.highlights.get('found-here')?.size ?? 0) > 0);
      assert.match((await marked())[0], /part|97/i);
      // The list is shown again, and the results return when the search field is focused.
      assert.ok((await page.locator(id('conversation-item')).count()) > 1);
      assert.equal(await page.locator(id('search-hit')).count(), 0);
      await page.keyboard.press('Control+k');
      await page.locator(id('search-hit')).first().waitFor();
      assert.equal(await page.locator(id('search')).inputValue(), 'part 97');
    },
  },

  'Ctrl F finds in all of the conversation, drawn or not': {
    fake: 'long',
    async run(page) {
      await page.locator(id('conversation-item')).filter({ hasText: /long/i }).first().click();
      await page.locator(id('message')).first().waitFor();
      await page.keyboard.press('Control+f');
      assert.equal(await focused(page), 'find');
      await page.keyboard.type('question 3:');
      await page.locator(id('find-count')).getByText('1 of 1').waitFor();
      await page.locator(`${id('message')}:has-text("Question 3:")`).waitFor();
      await page.waitForTimeout(200);
      const box = await page.locator(`${id('message')}:has-text("Question 3:")`).boundingBox();
      assert.ok(box.y > -50 && box.y < 500, `at ${box.y}`);
      assert.deepEqual(await page.evaluate(() => [...CSS.highlights.get('found-here')].map(String)), ['Question 3:']);
      await page.keyboard.press('Control+a');
      await page.keyboard.type('question');
      const told = async () => (await page.locator(id('find-count')).innerText()).replaceAll(/[^0-9of]+/g, ' ');
      const first = await told();
      await page.keyboard.press('Enter');
      assert.notEqual(await told(), first);
      await page.keyboard.press('Shift+Enter');
      assert.equal(await told(), first);
      await page.keyboard.press('Escape');
      assert.equal(await page.locator(id('find')).count(), 0);
      assert.equal(await focused(page), 'composer');
      await page.waitForFunction(() => CSS.highlights.get('found').size === 0);
      await page.keyboard.press('Control+Shift+f');
      assert.equal(await focused(page), 'search');
    },
  },

  'a deleted conversation comes back with undo': {
    fake: '',
    async run(page) {
      await open(page);
      const items = page.locator(id('conversation-item'));
      const before = await items.count();
      await items.first().focus();
      await page.keyboard.press('Delete');
      assert.equal(await items.count(), before - 1);
      assert.equal(await page.locator(id('message')).count(), 0);
      await page.locator(id('toast-action')).click();
      await page.locator(id('message')).first().waitFor();
      assert.equal(await items.count(), before);
    },
  },

  'deleting a conversation that streams leaves nothing behind': {
    fake: 'rate:20',
    async run(page) {
      await send(page, 'Tell me about bread at length.');
      await page.locator(`${id('message')}[data-state="generating"]`).waitFor();
      await page.locator(id('conversation-item')).first().focus();
      await page.keyboard.press('Delete');
      await page.waitForTimeout(400);
      assert.equal(await page.locator(id('message')).count(), 0);
      assert.equal(await page.locator(id('stop')).count(), 0);
      await page.locator(id('toast-action')).click();
      await page.locator(id('message')).first().waitFor();
      assert.equal(await replies(page).last().getAttribute('data-state'), 'stopped');
    },
  },

  'a stream goes on while another conversation is read, and drafts stay': {
    fake: 'rate:150',
    async run(page) {
      await open(page, 0);
      await send(page, 'Compare them in a table.');
      await page.locator(`${id('message')}[data-state="generating"]`).waitFor();
      await page.locator(id('composer')).fill('my draft');
      await page.locator(`${id('conversation-item')}:has-text("Counting words")`).click();
      await page.locator(id('message')).first().waitFor();
      assert.equal(await page.locator(id('composer')).inputValue(), '');
      assert.equal(await page.locator(id('stop')).count(), 0);
      await page.locator(`${id('conversation-item')}:has-text("Why bread")`).click();
      await finished(page);
      assert.equal(await page.locator(id('composer')).inputValue(), 'my draft');
      assert.match(await replies(page).last().innerText(), /Sliding window/);
    },
  },

  'hostile markdown runs nothing and loads nothing': {
    fake: 'empty,fast,hostile',
    async run(page, { requests }) {
      await sendAndWait(page, 'hostile');
      await page.waitForTimeout(300);
      assert.equal(await page.evaluate(() => window.__pwned), undefined);
      const bad = await page.locator('.prose').evaluateAll((roots) =>
        roots.flatMap((root) => [...root.querySelectorAll('*')]).filter(
          (element) =>
            ['SCRIPT', 'IMG', 'SVG', 'STYLE', 'IFRAME', 'MATH', 'FORM', 'OBJECT'].includes(element.tagName.toUpperCase()) ||
            [...element.attributes].some(({ name }) => name.startsWith('on') || ['href', 'src', 'style', 'srcdoc'].includes(name)),
        ).map((element) => element.outerHTML),
      );
      assert.deepEqual(bad, []);
      assert.deepEqual(requests.filter((url) => url.includes('example.invalid')), []);
      const before = page.url();
      for (const link of await page.locator('[data-link]').all()) await link.click();
      await page.waitForTimeout(200);
      assert.equal(page.url(), before, 'links leave the webview where it is');
      assert.equal(page.context().pages().length, 1);
    },
  },

  'a conversation of 100k tokens draws only what is in view': {
    fake: 'long',
    async run(page) {
      await page.locator(`${id('conversation-item')}:has-text("very long")`).click();
      await page.locator(id('message')).first().waitFor();
      const list = page.locator(id('messages'));
      const total = await list.evaluate((element) => element.scrollHeight);
      assert.ok(total > 60_000, `${total} px`);
      let most = 0;
      for (let step = 0; step < 40; step += 1) {
        await list.evaluate((element, top) => (element.scrollTop = top), (total * ((step * 7) % 40)) / 40);
        await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
        const seen = await page.evaluate(() => {
          const view = document.querySelector('[data-testid="messages"]').getBoundingClientRect();
          const boxes = [...document.querySelectorAll('[data-testid="message"]')].map((node) => node.getBoundingClientRect());
          return { nodes: boxes.length, covers: boxes.some((box) => box.top < view.bottom - 60 && box.bottom > view.top + 60) };
        });
        assert.ok(seen.covers, 'the view is never blank');
        most = Math.max(most, seen.nodes);
      }
      assert.ok(most <= 24, `${most} messages drawn at once`);
    },
  },

  'the place on the page holds still while heights are measured': {
    fake: 'long',
    async run(page) {
      await page.locator(`${id('conversation-item')}:has-text("very long")`).click();
      await page.locator(id('message')).first().waitFor();
      await page.mouse.move(700, 400);
      for (let step = 0; step < 12; step += 1) {
        const before = await anchor(page);
        await page.mouse.wheel(0, -240);
        await page.waitForTimeout(250);
        const after = await position(page, before.id);
        if (after !== null) assert.ok(Math.abs(after - before.top - 240) <= 3, `moved by ${after - before.top} instead of 240`);
      }
    },
  },

  'the page follows the stream only while the reader is at its end': {
    fake: 'rate:120',
    async run(page) {
      await open(page);
      await send(page, 'Tell me about bread at length.');
      await page.waitForFunction(() => (document.querySelector('[data-state="generating"]')?.textContent ?? '').length > 900);
      const gap = () => page.locator(id('messages')).evaluate((element) => element.scrollHeight - element.clientHeight - element.scrollTop);
      assert.ok((await gap()) <= 2, 'at the end');
      await page.mouse.move(700, 400);
      await page.mouse.wheel(0, -60);
      await page.waitForTimeout(200);
      const before = await anchor(page);
      await page.waitForTimeout(500);
      const after = await position(page, before.id);
      assert.equal(after, before.top, 'the text being read stands still');
      assert.ok((await gap()) > 60);
      await page.locator(id('to-end')).click();
      await page.waitForTimeout(300);
      assert.ok((await gap()) <= 2, 'follows again');
      await page.keyboard.press('Escape');
    },
  },

  'the keyboard alone is enough': {
    fake: 'fast',
    async run(page) {
      assert.equal(await focused(page), 'composer');
      await page.keyboard.type('first line');
      await page.keyboard.press('Shift+Enter');
      await page.keyboard.type('brief, please');
      assert.equal(await page.locator(id('composer')).inputValue(), 'first line\nbrief, please');
      await page.keyboard.press('Enter');
      await page.locator(`${id('message')}[data-role="assistant"][data-state="complete"]`).waitFor();
      assert.equal(await focused(page), 'composer');
      await page.keyboard.press('ArrowUp');
      assert.equal(await focused(page), 'edit-text');
      await page.keyboard.press('Escape');
      assert.equal(await focused(page), 'composer');
      await page.keyboard.press('Control+k');
      assert.equal(await focused(page), 'search');
      await page.keyboard.press('ArrowDown');
      assert.equal(await focused(page), 'conversation-item');
      await page.keyboard.press('ArrowDown');
      await page.keyboard.press('F2');
      await page.keyboard.press('Control+a');
      await page.keyboard.type('Renamed');
      await page.keyboard.press('Enter');
      await page.locator(`${id('conversation-item')}:has-text("Renamed")`).waitFor();
      await page.keyboard.press('Enter');
      await page.locator('h1:has-text("Renamed")').waitFor();
      await page.keyboard.press('Control+,');
      assert.equal(await focused(page), 'system-prompt');
      await page.keyboard.type('Be kind.');
      await page.keyboard.press('Escape');
      await page.keyboard.press('Control+,');
      assert.equal(await page.locator(id('system-prompt')).inputValue(), 'Be kind.');
      await page.keyboard.press('Escape');
      await page.keyboard.press('Control+n');
      assert.equal(await focused(page), 'composer');
      assert.equal(await page.locator(id('message')).count(), 0);
      for (let step = 0; step < 60 && (await focused(page)) !== 'model-picker'; step += 1) await page.keyboard.press('Tab');
      assert.equal(await focused(page), 'model-picker');
      await page.keyboard.press('Enter');
      await page.locator(id('model-item')).first().waitFor();
      await page.keyboard.press('Escape');
      assert.equal(await page.locator(id('model-item')).count(), 0);
    },
  },

  'a refused message stays in the composer and can be tried again': {
    fake: 'error:storage',
    async run(page) {
      await open(page);
      await send(page, 'Do not lose me.');
      await page.locator(`${id('problem')}[data-code="storage"]`).waitFor();
      assert.equal(await page.locator(id('composer')).inputValue(), 'Do not lose me.');
      assert.equal(await page.locator(id('remedy-retry')).count(), 1);
    },
  },

  'a reply that breaks off keeps what was shown': {
    fake: 'break:internal',
    async run(page) {
      await open(page);
      await send(page, 'Tell me about bread.');
      await page.locator(`${id('problem')}[data-code="internal"]`).waitFor();
      assert.equal(await replies(page).last().getAttribute('data-state'), 'failed');
      assert.ok((await replies(page).last().locator(id('reply-text')).innerText()).length > 20);
    },
  },

  'a full context says so and offers what can be done': {
    fake: 'context-full',
    async run(page) {
      await open(page);
      await send(page, 'One more.');
      await page.locator(`${id('problem')}[data-code="context_full"]`).waitFor();
      assert.equal(await users(page).last().innerText().then((text) => text.includes('One more.')), true);
      await page.locator(id('remedy-drop_oldest')).click();
      await page.locator(id('left-out')).getByText('1 earlier turn is left out').waitFor();
      await finished(page);
      assert.ok((await users(page).last().innerText()).includes('One more.'));
      await page.locator(id('show-full')).click();
      assert.equal(await page.locator(id('left-out')).count(), 0);
    },
  },

  'a conversation set to it goes on by itself and says what it left out': {
    fake: 'fast,context-full',
    async run(page) {
      await open(page);
      await page.keyboard.press('Control+,');
      await page.locator(id('when-full')).selectOption('drop_oldest');
      await page.keyboard.press('Escape');
      await send(page, 'And rye, brief?');
      await page.locator(id('left-out')).getByText('1 earlier turn is left out').waitFor();
      await finished(page);
      assert.match(await page.locator(id('shortened')).innerText(), /^Went on without the oldest turn\./);
      assert.equal(await page.locator(id('problem')).count(), 0);
      assert.equal(await replies(page).last().getAttribute('data-state'), 'complete');
    },
  },

  'sending what was typed computes only the rest': {
    fake: 'fast',
    async run(page) {
      await open(page, 4);
      await page.locator(id('composer')).pressSequentially('Tell me in brief about a fifth day by the sea with children', { delay: 5 });
      await page.waitForTimeout(450);
      await page.keyboard.type(' too');
      const before = await replies(page).count();
      await page.keyboard.press('Enter');
      await page.waitForFunction((n) => document.querySelectorAll('[data-testid="message"][data-role="assistant"]').length > n, before);
      await finished(page);
      const { computed } = await numbers(page.locator(id('quiet-line')).last());
      assert.ok(computed < 14, `${computed} computed`);
    },
  },

  'a nearly full context is told before, and a compacted branch goes on with a summary': {
    fake: 'rate:200,context:360',
    async run(page) {
      await open(page);
      await page.locator(`${id('context-meter')}:has-text("full:")`).waitFor();
      await page.locator(id('context-open')).click();
      await page.locator(id('context-compact')).click();
      await page.locator(id('summary-label')).waitFor();
      assert.match(await users(page).first().innerText(), /You asked about/);
      await sendAndWait(page, 'And now, brief?');
      assert.equal(await replies(page).last().getAttribute('data-state'), 'complete');
      await page.locator(id('branch-prev')).first().click();
      assert.equal(await page.locator(id('summary-label')).count(), 0);
    },
  },

  'without a model the page says how to add one': {
    fake: 'no-model,empty',
    async run(page) {
      await page.locator(id('model-path')).first().fill('/tmp/not-a-model.txt');
      await page.locator(id('model-add')).first().click();
      await page.locator(`${id('problem')}[data-code="model_not_gguf"]`).waitFor();
      await page.locator(id('model-path')).first().fill('/models/tiny.gguf');
      await page.locator(id('model-add')).first().click();
      await page.locator(`${id('model-picker')}:has-text("tiny")`).waitFor();
    },
  },

  'menus stay in the window at twice the print': {
    fake: 'context:360',
    viewport: { width: 360, height: 600 },
    async run(page) {
      await page.keyboard.press('Control+b');
      await open(page);
      const inside = async (locator, what) => {
        const { x, width } = await locator.boundingBox();
        assert.ok(x >= 0 && x + width <= 360, `${what} from ${x} to ${x + width}`);
      };
      await page.locator(id('model-picker')).click();
      await inside(page.getByRole('dialog', { name: 'Models' }), 'the models');
      await page.keyboard.press('Escape');
      await page.locator(id('export')).click();
      await inside(page.getByRole('menu'), 'the export');
      await page.keyboard.press('Escape');
      await page.locator(id('context-open')).click();
      await inside(page.locator(id('context-menu')), 'the choices');
      await page.keyboard.press('Escape');
      assert.ok((await page.locator('h1').boundingBox()).width > 40, 'the title can be read');
    },
  },

  'nothing spills over the page at any width': {
    fake: '',
    async run(page) {
      for (const width of [720, 900, 1100, 1600]) {
        await page.setViewportSize({ width, height: 700 });
        await page.waitForTimeout(80);
        if (!(await page.locator(id('search')).isVisible())) await page.keyboard.press('Control+b');
        await page.locator(id('conversation-item')).nth(6).click();
        await page.locator(id('message')).first().waitFor();
        const over = await page.evaluate(() => {
          const list = document.querySelector('[data-testid="messages"]');
          return document.documentElement.scrollWidth > innerWidth || list.scrollWidth > list.clientWidth;
        });
        assert.equal(over, false, `at ${width}`);
      }
    },
  },
};
