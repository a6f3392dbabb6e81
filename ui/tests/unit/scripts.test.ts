// Markdown in scripts without spaces and with full-width punctuation, and text that only resembles Markdown.
import { expect, test, vi } from 'vitest';
import { MarkdownBlocks } from '../../src/markdown/blocks';

vi.mock('dompurify', () => ({ default: { sanitize: vi.fn((html: string) => html) } }));

const html = (text: string) => new MarkdownBlocks().update(text).map((block) => block.html).join('');

function parsed(text: string): HTMLElement {
  const root = document.createElement('div');
  root.innerHTML = html(text);
  return root;
}

const strong = (text: string) => [...parsed(text).querySelectorAll('strong')].map((element) => element.textContent);
const links = (text: string) => [...parsed(text).querySelectorAll<HTMLElement>('[data-link]')].map((element) => element.dataset.link);

test('words are bold beside marks and letters of scripts without spaces', () => {
  const texts: [string, string][] = [
    ['**注意：**这是重点。', '注意：'],
    ['这是**“重要”**的内容', '“重要”'],
    ['**「AI」**とは', '「AI」'],
    ['**한국어(Korean)**는', '한국어(Korean)'],
    ['**测试。**后文', '测试。'],
    ['前文**（测试）**后文', '（测试）'],
    ['超过**10%**的人', '10%'],
    ['**5℃**以上', '5℃'],
    ['**หมายเหตุ:**นี่คือ', 'หมายเหตุ:'],
    ['**(ລາວ)**ແມ່ນ', '(ລາວ)'],
    ['**ចំណាំ៖**នេះ', 'ចំណាំ៖'],
    ['**မှတ်ချက်။**ဒါက', 'မှတ်ချက်။'],
    ['𠮷**「野家」**𠮷', '「野家」'],
    ['__注意：__ 这', '注意：'],
  ];
  for (const [text, bold] of texts) expect(strong(text), text).toEqual([bold]);
  expect(parsed('*「強調」*する').querySelector('em')?.textContent).toBe('「強調」');
  expect(parsed('~~旧，~~新').querySelector('del')?.textContent).toBe('旧，');
});

test('what is no emphasis stays as it was written', () => {
  for (const text of ['a ** b ** c', '文件_名_字', 'snake_case_name', '2 * 3 * 4', '10*20*30 cm', '约5~10元，或20~30元', '3~4℃和5~6℃', '**не закрыто']) {
    const root = parsed(text);
    expect(root.querySelector('em, strong, del'), text).toBeNull();
    expect(root.textContent?.trim(), text).toBe(text);
  }
});

test('an address ends before a wide mark, and keeps letters of any script', () => {
  expect(links('请看https://example.com/a，谢谢大家。')).toEqual(['https://example.com/a']);
  expect(links('（https://example.com/a）后面')).toEqual(['https://example.com/a']);
  expect(links('「https://example.com/a?b=c」。')).toEqual(['https://example.com/a?b=c']);
  expect(links('见https://example.com/a、https://example.com/b。')).toEqual(['https://example.com/a', 'https://example.com/b']);
  expect(links('“https://example.com/a”')).toEqual(['https://example.com/a']);
  expect(links('देखें https://example.com/a।')).toEqual(['https://example.com/a']);
  expect(links('https://zh.wikipedia.org/wiki/中文')).toEqual(['https://zh.wikipedia.org/wiki/%E4%B8%AD%E6%96%87']);
  expect(links('https://en.wikipedia.org/wiki/A–B_(c).')).toEqual(['https://en.wikipedia.org/wiki/A%E2%80%93B_(c)']);
  expect(parsed('请看https://example.com/a，谢谢大家。').textContent).toBe('请看https://example.com/a，谢谢大家。');
});

test('lines of a paragraph are joined without a space where the script has none', () => {
  expect(parsed('这是第一行，\n这是第二行').textContent).toBe('这是第一行，这是第二行');
  expect(parsed('- 一\n  二').querySelector('li')?.textContent).toBe('一二');
  expect(parsed('one\ntwo').textContent).toBe('one\ntwo');
  expect(parsed('한국어\n문장').textContent).toBe('한국어\n문장');
  expect(parsed('```\n一\n二\n```').querySelector('code')?.textContent).toBe('一\n二');
});

test('a bare environment is kept as it was written, closed or not', () => {
  const align = '\\begin{align} a &= b_1 \\\\ c_1 &= d * e * f \\end{align}';
  expect(parsed(align).querySelector('pre.formula')?.textContent).toBe(align);
  expect(parsed(`So:\n${align}\nand *on*`).querySelector('pre.formula')?.textContent).toBe(align);
  expect(parsed(`We get ${align} here.`).querySelector('code.formula')?.textContent).toBe(align);
  const nested = '\\begin{aligned}\n\\begin{bmatrix} 1 \\\\ 2 \\end{bmatrix} \\\\\n\\begin{bmatrix} 3 \\end{bmatrix}\n\\end{aligned}';
  expect(parsed(nested).querySelector('pre.formula')?.textContent).toBe(nested);
  const open = '\\begin{align} a &= b \\\\ c';
  expect(parsed(open).querySelector('pre.formula')?.textContent).toBe(open);
  const root = parsed(`${open}\n\nnext *word*`);
  expect(root.querySelector('pre.formula')?.textContent).toBe(open);
  expect(root.querySelector('em')?.textContent).toBe('word');
  expect(parsed('`\\begin{a}`').querySelector('.formula')).toBeNull();
  expect(parsed('\\begin{a}<img src=x onerror=y>\\end{a}').querySelector('img')).toBeNull();
});

test('a list of sources that nothing refers to is shown', () => {
  const listed = 'Text.\n\n[1]: https://example.com/a\n[2]: https://example.com/b "B"';
  expect(links(listed)).toEqual(['https://example.com/a', 'https://example.com/b']);
  expect(parsed(listed).textContent).toContain('[1]: https://example.com/a');
  expect(parsed(listed).querySelectorAll('br').length).toBe(1);
  expect(links('- [1]: https://example.com/a')).toEqual(['https://example.com/a']);
  expect(links('`a[1]`\n\n[1]: https://example.com/a')).toEqual(['https://example.com/a']);
  const used = 'See [it][1] and [2].\n\n[1]: https://example.com/a\n[2]: https://example.com/b\n[3]: https://example.com/c';
  expect(parsed(used).textContent).not.toContain('[1]:');
  expect(links(used)).toEqual(['https://example.com/a', 'https://example.com/b', 'https://example.com/c']);
  expect(links('[1]: javascript:alert(1)')).toEqual([]);
});

test('such texts read the same when they have grown, in whatever steps', () => {
  const texts = [
    '**注意：**这是**“重要”**的内容。\n\n请看https://example.com/a，谢谢。',
    '**หมายเหตุ:**นี่คือ\n\n5~10元，20~30元',
    'So:\n\\begin{align}\na &= b \\\\\nc &= d\n\\end{align}\n\nand on',
    'Open \n\n\\begin{align} a &= b \\\\ c\n\nnext',
    'One [1].\n\n[1]: https://example.com/a\n[2]: https://example.com/b\n\nEnd.\n\n[3]: https://example.com/c',
    '$$\na\n\nb\n$$\n\nend',
  ];
  for (const text of texts) {
    for (const step of [1, 2, 5]) {
      const growing = new MarkdownBlocks();
      for (let end = step; end < text.length; end += step) growing.update(text.slice(0, end), true);
      expect(growing.update(text), `${text} by ${step}`).toEqual(new MarkdownBlocks().update(text));
    }
  }
});

test('a reply that is being written never shows a formula without its backslashes', () => {
  const text = 'So:\n\n\\begin{align}\na &= b \\\\\nc &= d\n\\end{align}\n';
  for (let end = text.indexOf('{align}') + 8; end < text.length; end += 1) {
    const root = document.createElement('div');
    root.innerHTML = new MarkdownBlocks().update(text.slice(0, end), true).map((block) => block.html).join('');
    expect(root.querySelector('pre.formula')?.textContent, String(end)).toBe(text.slice(5, end).trim());
  }
});

test('no such text costs time without end', () => {
  const began = performance.now();
  for (const text of ['**注'.repeat(700), '\\begin{a}'.repeat(2000), '\\begin{a}\n'.repeat(2000), '[1]: https://a.b\n'.repeat(1000), '[1]: x\n'.repeat(2000), '`a\n'.repeat(5000), 'https://a，'.repeat(2000), '~1'.repeat(700), '一\n'.repeat(5000)]) {
    expect(html(text).length).toBeGreaterThan(0);
  }
  expect(performance.now() - began).toBeLessThan(4_000);
}, 20_000);
