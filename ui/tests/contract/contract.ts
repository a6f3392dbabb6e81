// The contract of the backend, on which the interface relies. The same scenarios run against the fake (vitest) and against the shell
// with a real model in the real window (tests/e2e/contract.rs), so that the fake cannot be kinder than the shell.
import { conversations } from './conversations';
import { engine } from './engine';
import type { Scenario } from './harness';
import { privacy } from './privacy';
import { room } from './room';
import { turns } from './turns';

export const contract: Scenario[] = [...conversations, ...turns, ...room, ...engine, ...privacy];
