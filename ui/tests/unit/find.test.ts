import { flushSync } from 'svelte';
import { expect, test, vi } from 'vitest';
import { FakeBackend } from '../../src/backend/fake/fake';
import { parseOptions } from '../../src/backend/fake/options';
import { rangeIn } from '../../src/components/found';
import { App } from '../../src/state/app.svelte';
import { placesOf, soughtPhrase, soughtWords } from '../../src/words/fold';
import { partsOf } from '../../src/state/search.svelte';
import type { SearchHit } from '../../src/state/types';
import { fixture } from './fixture';

async function start(options = ''): Promise<{ app: App; backend: FakeBackend }> {
  const backend = new FakeBackend(parseOptions(options));
  const app = new App(backend);
  await app.start();
  return { app, backend };
}

async function search(app: App, query: string) {
  app.search.write(query);
  await vi.waitFor(() => expect(app.search.answered).toBe(true));
  return app.search.hits;
}

test('the page finds the words that the history finds, in every script', () => {
  for (const { text, query, found } of fixture<{ text: string; query: string; found: string[] | null }>('search')) {
    const { places, all } = placesOf(text, soughtWords(query));
    expect(all, `${query} in ${text}`).toBe(found !== null);
    if (found) expect(merged(places).map(([start, end]) => text.slice(start, end)), `${query} in ${text}`).toEqual(found);
  }
});

/** Joins ranges that touch: a snippet shows them as one mark. */
function merged(places: [number, number][]): [number, number][] {
  const joined: [number, number][] = [];
  for (const [start, end] of places) {
    const last = joined.at(-1);
    if (last && last[1] >= start) last[1] = Math.max(last[1], end);
    else joined.push([start, end]);
  }
  return joined;
}

test('a phrase is found inside of words, over line ends, and every sign stands for itself', () => {
  const slices = (text: string, phrase: string) => placesOf(text, soughtPhrase(phrase)).places.map(([start, end]) => text.slice(start, end));
  expect(slices('Unkind Kinder', 'KIND')).toEqual(['kind', 'Kind']);
  expect(slices('a line\n  end', 'line end')).toEqual(['line\n  end']);
  expect(slices('a.b axb (a)', 'a.b')).toEqual(['a.b']);
  expect(slices('Crème 𝒳crème', 'creme')).toEqual(['Crème', 'crème']);
  expect(slices('anything', '  ')).toEqual([]);
});

test('titles are among the hits, and what was found in them is marked', async () => {
  const { app } = await start();
  const { id } = app.conversations[1];
  await app.rename(id, 'Quarterly zucchini\u202e');
  const [hit] = await search(app, 'ZUCCHÍNI');
  expect(hit).toMatchObject({ kind: 'title', conversation: id, message: null, snippet: 'Quarterly zucchini' });
  expect(partsOf(hit.snippet, hit.marks)).toEqual([{ text: 'Quarterly ', match: false }, { text: 'zucchini', match: true }]);
});

test('a search that failed says so and never that nothing was found', async () => {
  const { app, backend } = await start();
  const fail = vi.spyOn(backend, 'search').mockRejectedValue({ code: 'disk_full', message: 'the disk is full' });
  app.search.write('steam');
  await vi.waitFor(() => expect(app.search.problem?.code).toBe('disk_full'));
  expect(app.search.answered).toBe(false);
  fail.mockRestore();
  app.search.retry();
  await vi.waitFor(() => expect(app.search.answered).toBe(true));
  expect(app.search.problem).toBeNull();
});

test('an opened hit makes room for the list, and the search is taken up where it was left', async () => {
  const { app } = await start();
  const hit = (await search(app, 'steam')).find((one) => one.kind === 'message') as SearchHit;
  await app.openHit(hit);
  expect(app.search.active).toBe(false);
  expect(app.search.text).toBe('steam');
  expect(app.find.open && app.find.opened).toBe(hit.message);
  app.search.takeUp();
  expect(app.search.active).toBe(true);
  await vi.waitFor(() => expect(app.search.hits).toContainEqual(hit));
});

test('finding goes through every place of the shown branch and around its ends', async () => {
  const { app } = await start('long');
  await app.openConversation(app.conversations.find((one) => one.title.includes('long') || one.title.includes('Long'))?.id ?? app.conversations[0].id);
  const { find } = app;
  find.begin();
  find.write('question');
  flushSync();
  const total = find.found.length;
  expect(total).toBeGreaterThan(10);
  expect(find.position).toBe(1);
  find.step(-1);
  expect(find.position).toBe(total);
  expect(app.open?.reveal?.id).toBe(find.found[total - 1].message);
  find.step(1);
  expect(find.position).toBe(1);
  find.write('no such words');
  expect(find.found).toEqual([]);
  find.step(1);
  expect(find.position).toBe(0);
  app.newConversation();
  expect(find.open).toBe(false);
});

test('a place is marked across the elements that it runs through, and buttons are no text', () => {
  const article = document.createElement('article');
  article.innerHTML = '<div data-words><p>Some <b>cr\u00e8</b>me <button>creme</button>brûlée</p></div>';
  document.body.append(article);
  const range = rangeIn(article, soughtPhrase('creme brulee'), { message: 'm', nth: 5 });
  expect(range?.toString().replace('creme', '')).toBe('crème brûlée');
  expect(range?.startContainer.textContent).toBe('crè');
  expect(rangeIn(article, soughtPhrase('absent'), { message: 'm', nth: 0 })).toBeNull();
});
