// WCAG contrast of the design tokens: 4.5 : 1 for text, 3 : 1 for borders and controls.
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

const css = readFileSync('src/styles/tokens.css', 'utf8');
const [light, rest] = css.split('@media (prefers-color-scheme: dark)');
const dark = rest.split('@media')[0];
const colours = (part: string) => Object.fromEntries([...part.matchAll(/--([\w-]+): (#[0-9a-f]{6});/g)].map((match) => [match[1], match[2]]));
const THEMES = { light: colours(light), dark: { ...colours(light), ...colours(dark) } };

function luminance(hex: string): number {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast(one: string, other: string): number {
  const [high, low] = [luminance(one), luminance(other)].sort((a, b) => b - a);
  return (high + 0.05) / (low + 0.05);
}

const GROUNDS = ['page', 'side', 'block', 'raised', 'hover'];
const WORDS = ['ink', 'soft', 'faint', 'loss'];
const CODE = ['code-string', 'code-number', 'code-name'];

test('contrasts are counted as they are elsewhere', () => {
  expect(contrast('#000000', '#ffffff')).toBeCloseTo(21, 5);
  expect(contrast('#777777', '#ffffff')).toBeCloseTo(4.48, 2);
});

for (const [name, theme] of Object.entries(THEMES)) {
  test(`words stand out from every ground, ${name}`, () => {
    for (const ground of GROUNDS) for (const word of WORDS) expect(contrast(theme[word], theme[ground]), `${word} on ${ground}`).toBeGreaterThanOrEqual(4.5);
    for (const word of CODE) for (const ground of ['block', 'page']) expect(contrast(theme[word], theme[ground]), `${word} on ${ground}`).toBeGreaterThanOrEqual(4.5);
    for (const ground of ['ember', 'ember-hover']) expect(contrast(theme['on-ember'], theme[ground]), ground).toBeGreaterThanOrEqual(4.5);
  });

  test(`borders of fields, focus and warmth are seen, ${name}`, () => {
    for (const ground of GROUNDS) for (const part of ['edge', 'soft']) expect(contrast(theme[part], theme[ground]), `${part} on ${ground}`).toBeGreaterThanOrEqual(3);
    // Reused and restored tokens against cold ones; a gap in the page colour separates them from each other.
    for (const part of ['ember', 'ember-mid']) for (const ground of ['cold', 'page', 'raised']) expect(contrast(theme[part], theme[ground]), `${part} on ${ground}`).toBeGreaterThanOrEqual(3);
    expect(contrast(theme.faint, theme.cold), 'computed on cold').toBeGreaterThanOrEqual(3);
    expect(contrast(theme.page, theme.soft), 'the mark in a checked box').toBeGreaterThanOrEqual(3);
  });
}

test('nothing that can be used has a border that only parts', () => {
  const base = readFileSync('src/styles/base.css', 'utf8');
  for (const selector of ['.button {', '.field {', '.small-field {', "input[type='checkbox'] {"]) {
    const rule = base.slice(base.indexOf(selector), base.indexOf('}', base.indexOf(selector)));
    expect(rule, selector).toContain('var(--edge)');
  }
  for (const [file, selector] of [['Composer', '.box {'], ['Editor', '.editor {'], ['Sidebar', '.search {']]) {
    const text = readFileSync(`src/components/${file}.svelte`, 'utf8');
    const rule = text.slice(text.indexOf(`  ${selector}`), text.indexOf('}', text.indexOf(`  ${selector}`)));
    expect(rule, file).toContain('1px solid var(--edge)');
  }
});
