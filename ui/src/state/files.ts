// What is dropped or pasted as a file: texts go into the draft, and of all others it is said why they do not.

/** More would not fit into the context of any model here. */
const LARGEST_BYTES = 512 * 1024;

/** A file as the system hands it over. */
export interface DroppedFile {
  readonly name: string;
  readonly type: string;
  readonly size: number;
  arrayBuffer(): Promise<ArrayBuffer>;
}

export interface Taken {
  /** The files that are texts, each in a block with its name. */
  text: string;
  /** Why the others were not taken, a sentence each. */
  refusals: string[];
}

export async function takeFiles(files: readonly DroppedFile[]): Promise<Taken> {
  const blocks: string[] = [];
  const refusals: string[] = [];
  for (const file of files) {
    const taken = await textOf(file);
    if ('refusal' in taken) refusals.push(taken.refusal);
    else blocks.push(blockOf(file.name, taken.text));
  }
  return { text: blocks.join('\n\n'), refusals: [...new Set(refusals)] };
}

async function textOf(file: DroppedFile): Promise<{ text: string } | { refusal: string }> {
  const name = `“${file.name}”`;
  // What a picture is drawn with may be text, and is meant as a picture all the same only where it is none.
  if (file.type.startsWith('image/') && file.type !== 'image/svg+xml') return { refusal: 'Pictures cannot be read by this model.' };
  if (file.size > LARGEST_BYTES) return { refusal: `${name} is too large: a text of up to ${LARGEST_BYTES / 1024} kB can be read.` };
  const bytes = await file.arrayBuffer().catch(() => null);
  if (!bytes) return { refusal: `${name} cannot be read. A folder cannot be dropped: drop the files in it.` };
  const text = decode(new Uint8Array(bytes));
  if (text === null) return { refusal: `${name} is no text: only text files can be read.` };
  return text.trim() ? { text } : { refusal: `${name} is empty.` };
}

/** The text, if it is one: UTF-8, or UTF-16 that says so. */
function decode(bytes: Uint8Array): string | null {
  const encoding = bytes[0] === 0xff && bytes[1] === 0xfe ? 'utf-16le' : bytes[0] === 0xfe && bytes[1] === 0xff ? 'utf-16be' : 'utf-8';
  try {
    const text = new TextDecoder(encoding, { fatal: true }).decode(bytes);
    return text.includes('\0') ? null : text;
  } catch {
    return null;
  }
}

/** A fence that nothing in the text ends. */
function blockOf(name: string, text: string): string {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([ticks]) => ticks.length));
  const fence = '`'.repeat(longest + 1);
  const language = /\.(\w{1,12})$/.exec(name)?.[1].toLowerCase() ?? '';
  return `${name}\n\n${fence}${language}\n${text.replace(/\r\n/g, '\n').replace(/\n$/, '')}\n${fence}`;
}
