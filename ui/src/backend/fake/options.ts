/** What the address may ask of the fake: `?fake=slow,long,error:busy`. */
export interface FakeOptions {
  /** Conversations to begin with. */
  empty: boolean;
  long: boolean;
  noModel: boolean;
  /** Incomplete files and files of other kinds lie beside the models. */
  foreignFiles: boolean;
  /** The model of the seeded conversations no longer exists. */
  goneModel: boolean;
  hostile: boolean;
  /** Replies begin with a thought, as reasoning models write it. */
  thinking: boolean;
  /** Tokens of a prompt read per second, tokens of a reply written per second. */
  prefillRate: number;
  decodeRate: number;
  /** Every turn is refused with this code. */
  errorCode: string | null;
  /** Every turn breaks off in the middle with this code. */
  breakCode: string | null;
  contextFull: boolean;
  /** The conversations are encrypted under the passphrase "open sesame", and nobody has said it. */
  locked: boolean;
  /** The system has no keychain. */
  noKeychain: boolean;
  /** The machine has a GPU. */
  gpu: boolean;
  contextTokens: number;
}

export function parseOptions(text: string): FakeOptions {
  const words = text.split(',').map((word) => word.trim());
  const value = (name: string) => words.find((word) => word.startsWith(`${name}:`))?.slice(name.length + 1) ?? null;
  const long = words.includes('long');
  return {
    empty: words.includes('empty'),
    long,
    noModel: words.includes('no-model'),
    foreignFiles: words.includes('foreign-files'),
    goneModel: words.includes('gone-model'),
    hostile: words.includes('hostile'),
    thinking: words.includes('thinking'),
    prefillRate: words.includes('slow') ? 60 : 20_000,
    decodeRate: Number(value('rate') ?? (words.includes('fast') ? 2000 : 70)),
    errorCode: value('error'),
    breakCode: value('break'),
    contextFull: words.includes('context-full'),
    locked: words.includes('locked'),
    noKeychain: words.includes('no-keychain'),
    gpu: words.includes('gpu'),
    contextTokens: Number(value('context') ?? (long ? 131_072 : 8192)),
  };
}
