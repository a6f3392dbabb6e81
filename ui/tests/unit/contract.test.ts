import { expect, test } from 'vitest';
import { FakeBackend } from '../../src/backend/fake/fake';
import { parseOptions } from '../../src/backend/fake/options';
import { contract } from '../contract/contract';
import type { Start } from '../contract/harness';

const OPTIONS: Record<Start, string> = { ready: 'empty,fast', locked: 'empty,fast,locked', no_model: 'empty,fast,no-model' };

for (const { name, start, run } of contract) {
  test(name, async () => await run(new FakeBackend(parseOptions(OPTIONS[start]))), 30_000);
}

test('every scenario has a name of its own', () => {
  expect(new Set(contract.map((scenario) => scenario.name)).size).toBe(contract.length);
});
