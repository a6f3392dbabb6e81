// Formats numbers for display: a space between thousands, units spelled out.
import type { MemoryPlan, Prefill, Shorten, TurnStats } from './types';

// A no-break space. Thinner ones are lost on WebKitGTK or missing in the font.
const GAP = '\u00a0';

export function count(value: number): string {
  const digits = Math.round(value).toString();
  return digits.replace(/\B(?=(\d{3})+(?!\d))/g, GAP);
}

export function duration(ms: number): string {
  if (ms < 1000) return `${count(Math.max(ms, 0))}${GAP}ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)}${GAP}s`;
  return `${count(ms / 60_000)}${GAP}min`;
}

/** An estimated duration, no finer than a second. */
export function roughly(ms: number): string {
  return ms < 60_000 ? `${Math.round(ms / 1000)}${GAP}s` : duration(ms);
}

export function rate(tokensPerSecond: number): string {
  const value = tokensPerSecond < 10 ? tokensPerSecond.toFixed(1) : count(tokensPerSecond);
  return `${value} tokens/s`;
}

export function bytes(value: number): string {
  const units = ['bytes', 'kB', 'MB', 'GB', 'TB'];
  let unit = 0;
  let left = value;
  while (left >= 1000 && unit < units.length - 1) {
    left /= 1000;
    unit += 1;
  }
  return `${unit === 0 || left >= 100 ? Math.round(left) : left.toFixed(1)}${GAP}${units[unit]}`;
}

/** The parts of the quiet line: what was reused, restored and computed, how fast. */
export function quietParts(stats: TurnStats): string[] {
  const { resident, restored, computed } = stats.prefill;
  const parts = [];
  if (resident > 0) parts.push(`${count(resident)} reused`);
  if (restored > 0) parts.push(`${count(restored)} restored`);
  parts.push(`${count(computed)} computed`);
  parts.push(`first token ${duration(stats.ttft_ms)}`);
  if (stats.tokens_per_s > 0) parts.push(rate(stats.tokens_per_s));
  return parts;
}

/** The quiet line as a sentence, for screen readers and the tooltip of its bar. */
export function quietWords(stats: TurnStats): string {
  const { resident, restored, computed } = stats.prefill;
  const plain = (value: number) => String(Math.round(value));
  const read = `Of ${plain(stats.prompt_tokens)} tokens ${plain(resident)} were reused from memory, ${plain(restored)} restored from disk and ${plain(computed)} computed.`;
  const speed = stats.tokens_per_s > 0 ? `, then ${rate(stats.tokens_per_s).replace(GAP, '').replace('tokens/s', 'tokens a second')}` : '';
  return `${read} First token after ${plain(stats.ttft_ms)} milliseconds${speed}.`;
}

/** What a shorter branch has in place of how many turns, and which of them have no room in its summary either. */
export function shortenedWords(how: Shorten, turns: number, leftOut: number): string {
  const oldest = (number: number) => (number === 1 ? 'the oldest turn' : `the ${count(number)} oldest turns`);
  if (how === 'drop_oldest') return `Went on without ${oldest(turns)}. The full branch stays.`;
  const summarised = count(turns - leftOut) === '1' ? '1 turn' : `${count(turns - leftOut)} turns`;
  return `Went on with a summary of ${summarised}${leftOut > 0 ? `, without ${oldest(leftOut)}` : ''}. The full branch stays.`;
}

/** Shares of a prompt in percent, warmest first. */
export function shares(prefill: Prefill): { resident: number; restored: number; computed: number } {
  const total = prefill.resident + prefill.restored + prefill.computed;
  if (total === 0) return { resident: 0, restored: 0, computed: 0 };
  const share = (part: number) => (100 * part) / total;
  return { resident: share(prefill.resident), restored: share(prefill.restored), computed: share(prefill.computed) };
}

/** What a model would take in memory, in one line. */
export function planLine(plan: MemoryPlan): string {
  const parts = `${bytes(plan.weights_bytes)} weights + ${bytes(plan.kv_bytes)} for ${count(plan.context_tokens)} tokens`;
  return `${parts} · ${verdict(plan)}`;
}

function verdict({ verdict, offload, longest_context_tokens: longest }: MemoryPlan): string {
  if (offload) {
    if (offload.device_layers === 0) return 'no room on the GPU, computed on the CPU';
    return `the GPU computes ${count(offload.device_layers)} of ${count(offload.num_layers)} layers, the CPU the rest`;
  }
  switch (verdict.verdict) {
    case 'fits':
      return 'fits';
    case 'fits_with':
      return `fits with ${verdict.format}`;
    case 'needs':
      return `needs ${bytes(verdict.needed_bytes)}${longest > 0 ? `, ${count(longest)} tokens fit` : ''}`;
    case 'unknown':
      return 'this system does not say whether it fits';
  }
}

const NAME_LENGTH = 60;

/** Shortens a long name to its first words. */
export function shortName(name: string): string {
  const letters = [...new Intl.Segmenter().segment(name)].map(({ segment }) => segment);
  if (letters.length <= NAME_LENGTH) return name;
  const cut = letters.slice(0, NAME_LENGTH).join('');
  const space = cut.lastIndexOf(' ');
  return `${(space > cut.length / 2 ? cut.slice(0, space) : cut).trimEnd()}…`;
}
