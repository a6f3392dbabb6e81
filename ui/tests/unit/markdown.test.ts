import DOMPurify from 'dompurify';
import { expect, test, vi } from 'vitest';
import { FORMULAS, HOSTILE } from '../../src/backend/fake/replies';
import { MarkdownBlocks } from '../../src/markdown/blocks';
import { safeUrl } from '../../src/markdown/render';
import { splitThought, spoken } from '../../src/markdown/thought';

// The sanitiser needs a real browser: the browser tests run it. Here the renderer has to be safe by itself.
vi.mock('dompurify', () => ({ default: { sanitize: vi.fn((html: string) => html) } }));

const html = (text: string) => new MarkdownBlocks().update(text).map((block) => block.html).join('');

function parsed(text: string): HTMLElement {
  const root = document.createElement('div');
  root.innerHTML = html(text);
  return root;
}

test('Markdown becomes what it says', () => {
  expect(html('# Title')).toBe('<h1 dir="auto">Title</h1>');
  const root = parsed('a **b** `c`\n\n- x\n- y\n\n| h |\n|--:|\n| 1 |\n\n1. one');
  expect(root.querySelector('strong')?.textContent).toBe('b');
  expect(root.querySelectorAll('ul li').length).toBe(2);
  expect(root.querySelector('td')?.getAttribute('data-align')).toBe('right');
});

test('code is highlighted, named and can be copied', () => {
  const root = parsed('```rust\nfn main() {}\n```');
  expect(root.querySelector('.code-language')?.textContent).toBe('rust');
  expect(root.querySelector('.hljs-keyword')?.textContent).toBe('fn');
  expect(root.querySelector('[data-copy]')).not.toBeNull();
  expect(parsed('```nolang\n<b>\n```').querySelector('code')?.textContent).toBe('<b>');
});

test('HTML is shown as text', () => {
  const root = parsed('<b onclick="x()">hi</b> and <!-- note --> end\n\n<script>alert(1)</script>');
  expect(root.textContent).toContain('<b onclick="x()">');
  expect(root.textContent).toContain('<script>alert(1)</script>');
  expect(root.querySelector('script, b')).toBeNull();
});

test('a bare line break is one', () => {
  expect(html('a<br>b')).toBe('<p dir="auto">a<br>b</p>');
  expect(html('a<br onload=x>b')).not.toContain('<br');
});

test('hostile replies leave no element or attribute that acts', () => {
  const root = parsed(HOSTILE);
  expect(root.querySelectorAll('script, img, svg, style, iframe, math, form, object, embed, video, audio, meta, base').length).toBe(0);
  for (const element of root.querySelectorAll('*')) {
    for (const { name } of element.attributes) {
      expect(name.startsWith('on')).toBe(false);
      expect(['href', 'src', 'style', 'srcdoc', 'formaction', 'action', 'id', 'name']).not.toContain(name);
    }
  }
});

test('only web and mail addresses are links', () => {
  expect(safeUrl('https://example.com/a b')).toBe('https://example.com/a%20b');
  expect(safeUrl('mailto:a@b.c')).toBe('mailto:a@b.c');
  for (const bad of ['javascript:alert(1)', 'JaVaScRiPt:alert(1)', ' javascript:alert(1)', 'data:text/html,x', 'file:///etc/passwd', 'vbscript:x', '/relative', 'tauri://x', 'java\tscript:x']) {
    expect(safeUrl(bad), bad).toBeNull();
  }
  expect(parsed('[a](javascript:alert(1))').querySelector('a')).toBeNull();
  expect(parsed('[a](https://example.com)').querySelector('a')?.getAttribute('data-link')).toBe('https://example.com/');
});

test('formulas are shown as they were written', () => {
  const root = parsed(FORMULAS);
  const formulas = [...root.querySelectorAll('.formula')].map((formula) => formula.textContent);
  expect(formulas).toEqual([
    'a_1 x^2 + b_1 x + c_1 = 0',
    String.raw`x_{1,2} = \frac{-b_1 \pm \sqrt{b_1^2 - 4 a_1 c_1}}{2 a_1}`,
    'a_1 = 1',
    'b_1 * b_1 > 4 c_1',
    String.raw`\begin{cases}
x_1 + x_2 = -b_1 \\
x_1 * x_2 = c_1
\end{cases}`,
  ]);
  expect(root.querySelector('em, h1, h2')).toBeNull();
  expect(root.textContent).toContain('costs $5 to $6.');
});

test('a dollar that is none of a formula stays, and so does code', () => {
  for (const text of ['It costs $5 and $6.', 'US$10-$20', 'a $ b $ c', '$HOME and $PATH/x', 'PATH=$PATH:$HOME/bin', 'one \\$5 and \\$6']) expect(parsed(text).querySelector('.formula'), text).toBeNull();
  expect(parsed('`\\(a\\)` and `$b$`').querySelectorAll('code:not(.formula)').length).toBe(2);
  expect(parsed('```\n$$\na\n$$\n```').querySelector('.formula')).toBeNull();
  expect(parsed('\\(<img src=x onerror=y>\\)').querySelector('img')).toBeNull();
});

test('images are named and never loaded', () => {
  const root = parsed('![a cat](https://example.com/cat.png)');
  expect(root.querySelector('img')).toBeNull();
  expect(root.textContent).toBe('[a cat]');
});

test('endless nesting costs neither the stack nor the time', () => {
  const began = performance.now();
  for (const text of [
    '>'.repeat(20_000), '> '.repeat(5000), '- '.repeat(5000), '['.repeat(20_000), '*'.repeat(20_000), '*a '.repeat(5000), '_a*'.repeat(5000),
    '`'.repeat(9999), '<'.repeat(20_000), '![['.repeat(5000), '1. '.repeat(5000), '~~a'.repeat(5000), '<a href="'.repeat(3000), '|'.repeat(20_000),
    `${'a|'.repeat(2000)}\n${'-|'.repeat(2000)}`, '[a](' + '('.repeat(10_000), `${'  '.repeat(3000)}- x`, '<!--'.repeat(5000), '&'.repeat(20_000), '\\'.repeat(20_000), 'a_'.repeat(8000), '\\('.repeat(3000), '\\['.repeat(3000), '\\[\n'.repeat(2000), '$$\n'.repeat(2001), '$a'.repeat(3000), '$$a'.repeat(2001), '\\[\n\n'.repeat(2000),
    Array.from({ length: 300 }, (_, depth) => `${'  '.repeat(depth)}- x`).join('\n'), Array.from({ length: 300 }, (_, depth) => `${'> '.repeat(depth)}x`).join('\n'),
  ]) {
    expect(html(text).length).toBeGreaterThan(0);
  }
  expect(performance.now() - began).toBeLessThan(4_000);
}, 20_000);

test('signs between fences do not make a text tangled', () => {
  const code = `/${'*'.repeat(200)}/\n${'a_b '.repeat(3000)}`;
  expect(parsed(`# T\n\n\`\`\`c\n${code}\n\`\`\`\n`).querySelector('h1')).not.toBeNull();
  expect(parsed(`**b** ${'*'.repeat(200)}`).querySelector('.plain')).toBeNull();
});

test('a text that grows gives the same blocks as the whole text, and finished blocks are left alone', () => {
  const text = '# Title\n\nOne *two*\r\nthree.\n\n- a\n- b\n\n  still b\n\n```js\nlet x = 1;\n\nlet y;\n```\n\nLast\n====\n\n> quote\nlazy\n\n<div>\n\n1. x\n2. y\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nend';
  for (const step of [1, 3, 7, 50]) {
    const growing = new MarkdownBlocks();
    let before: readonly { start: number; html: string }[] = [];
    for (let end = step; ; end = Math.min(end + step, text.length)) {
      const now = growing.update(text.slice(0, end));
      for (let index = 0; index < Math.min(before.length - 1, now.length - 1); index += 1) expect(now[index]).toBe(before[index]);
      before = now;
      if (end === text.length) break;
    }
    expect(before).toEqual(new MarkdownBlocks().update(text));
  }
});

test('a reply that ends is set as if it had come whole, and its finished blocks are left alone', () => {
  const texts = [
    '3. a\n4. **b**\n   - c\n5. d\n', '- a\n\n- b', '- [x] done\n- [ ] open', `\`\`\`js\n${'let x = "y"; // z\n'.repeat(400)}`, FORMULAS, 'See [it][1].\n\nMore.\n\n[1]: https://example.com', `one\n\n${'*a '.repeat(3000)}`,
  ];
  for (const text of texts) {
    const blocks = new MarkdownBlocks();
    for (let end = 1; end < text.length; end += Math.ceil(text.length / 40)) blocks.update(text.slice(0, end), true);
    expect(blocks.update(text)).toEqual(new MarkdownBlocks().update(text));
  }
  const blocks = new MarkdownBlocks();
  const [first] = blocks.update('one\n\ntwo', true);
  expect(blocks.update('one\n\ntwo three')[0]).toBe(first);
});

test('of a list or code that grows only what is new is set again', () => {
  const list = Array.from({ length: 300 }, (_, index) => `- item ${index} with **words**`).join('\n');
  const code = `\`\`\`js\n${'let x = "y"; // z\n'.repeat(800)}`;
  for (const text of [list, code]) {
    const blocks = new MarkdownBlocks();
    blocks.update(text, true);
    const counted = vi.mocked(DOMPurify.sanitize).mock.calls;
    counted.length = 0;
    blocks.update(`${text} more`, true);
    expect(counted.length).toBe(1);
    const spans = String(counted[0][0]).match(/<span/g)?.length ?? 0;
    expect(spans).toBeLessThan(1000);
  }
});

test('a text that is not a continuation is parsed anew', () => {
  const blocks = new MarkdownBlocks();
  blocks.update('one\n\ntwo');
  expect(blocks.update('three').map((block) => block.html)).toEqual(['<p dir="auto">three</p>']);
  expect(blocks.update('')).toEqual([]);
});

test('what a reasoning model thinks is parted from what it says', () => {
  expect(splitThought('plain')).toEqual({ thought: null, thoughtDone: true, answer: 'plain' });
  expect(splitThought('<think>\nhm', 'generating')).toEqual({ thought: 'hm', thoughtDone: false, answer: '' });
  expect(splitThought('<think>', 'generating')).toEqual({ thought: '', thoughtDone: false, answer: '' });
  expect(splitThought('<think>\nhm', 'length')).toEqual({ thought: 'hm', thoughtDone: false, answer: '' });
  expect(splitThought('<think>\nhm\n</think>\n\nso')).toEqual({ thought: 'hm', thoughtDone: true, answer: 'so' });
  expect(splitThought('<think>hm</think>\n\nso')).toEqual({ thought: 'hm', thoughtDone: true, answer: 'so' });
  expect(splitThought('<seed:think>\nhm\n</seed:think>so').answer).toBe('so');
});

test('an empty thought is not shown', () => {
  expect(splitThought('<think>\n\n</think>\n\nso')).toEqual({ thought: null, thoughtDone: true, answer: 'so' });
  expect(splitThought('<think>\n', 'stopped')).toEqual({ thought: null, thoughtDone: false, answer: '' });
});

test('a finished reply that only mentions the tag of a thought is an answer', () => {
  const open = '<think> is the tag that reasoning models write before they answer.';
  const both = '<think> opens a thought and </think> closes it.';
  const code = 'They write:\n\n```\n<think>\nhm\n</think>\n```\n\nand then answer.';
  const cut = 'Write it so:\n\n```\nhm\n</think>\n';
  for (const text of [open, both, code, cut, 'The tag is `</think>`.']) {
    expect(splitThought(text).answer, text).toBe(text);
    expect(splitThought(text).thought, text).toBeNull();
  }
  expect(splitThought(open, 'stopped').answer).toBe(open);
});

test('an older reply whose thought the prompt opened is parted at the closing tag', () => {
  const text = 'Okay. It is Paris.\n</think>\n\nParis.';
  expect(splitThought(text)).toEqual({ thought: 'Okay. It is Paris.', thoughtDone: true, answer: 'Paris.' });
});

test('a copied reply leaves its thought out', () => {
  expect(spoken('<think>\nhm\n</think>\n\nso')).toBe('so');
  expect(spoken('plain')).toBe('plain');
  expect(spoken('<think>\nhm', 'length'), 'it came no further').toBe('hm');
});
