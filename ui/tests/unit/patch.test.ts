import { expect, test } from 'vitest';
import { patched } from '../../src/components/patch';

function shown(html: string): { node: HTMLElement; update: (next: string) => void } {
  const node = document.createElement('div');
  const action = patched(node, html) as { update: (next: string) => void };
  return { node, update: action.update };
}

test('what is the same stays the same node, and the rest becomes what is wanted', () => {
  const steps = [
    '<p>one</p>', '<p>one <em>two</em></p>', '<p>one <em>two</em> three</p>', '<p>on <strong>e</strong></p><ul><li>a</li></ul>', '<h1 dir="auto">x</h1>',
    '<ul class="a"><li>a</li><li>b</li></ul>', '<ul><li>a</li><li>b <code>c</code></li><li>d</li></ul>', '', 'text', '<!-- note -->text',
  ];
  for (const from of steps) {
    for (const to of steps) {
      const { node, update } = shown(from);
      update(to);
      expect(node.innerHTML, `${from} to ${to}`).toBe(to);
    }
  }
});

test('text that grows grows in its node', () => {
  const { node, update } = shown('<p>one <em>two</em> thr</p>');
  const nodes = [node.firstChild, node.firstChild?.firstChild, node.firstChild?.lastChild];
  update('<p>one <em>two</em> three and</p>');
  expect([node.firstChild, node.firstChild?.firstChild, node.firstChild?.lastChild]).toEqual(nodes);
  expect(node.textContent).toBe('one two three and');
});

test('a button keeps what it says', () => {
  const { node, update } = shown('<button data-copy="code">Copy</button><code>a</code>');
  const button = node.querySelector('button') as HTMLElement;
  button.textContent = 'Copied';
  update('<button data-copy="code">Copy</button><code>a b</code>');
  expect(node.querySelector('button')).toBe(button);
  expect(button.textContent).toBe('Copied');
});
