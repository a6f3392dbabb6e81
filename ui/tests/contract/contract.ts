// The contract of the backend: what the interface may rely on. The same scenarios run against the backend in memory (vitest) and
// against the shell with a real model, inside the real window (tests/e2e/contract.rs), so that the one cannot be kinder than the other.
import { conversations } from './conversations';
import { engine } from './engine';
import type { Scenario } from './harness';
import { privacy } from './privacy';
import { room } from './room';
import { turns } from './turns';

export const contract: Scenario[] = [...conversations, ...turns, ...room, ...engine, ...privacy];
