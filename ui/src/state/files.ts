// Dropped or pasted files: text files go into the draft, every other file gets a reason for its refusal.

/** Larger texts fit into the context of no supported model. */
const LARGEST_BYTES = 512 * 1024;

/** The part of the DOM's `File` that is used. */
export interface DroppedFile {
  readonly name: string;
  readonly type: string;
  readonly size: number;
  arrayBuffer(): Promise<ArrayBuffer>;
}

export interface Taken {
  /** The text files, each as a code block with its name. */
  text: string;
  /** One sentence for each reason of refusal. */
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
  // SVG is an image type but also text, so it is read like any other file.
  if (file.type.startsWith('image/') && file.type !== 'image/svg+xml') return { refusal: 'Pictures cannot be read by this model.' };
  if (file.size > LARGEST_BYTES) return { refusal: `${name} is too large: a text of up to ${LARGEST_BYTES / 1024} kB can be read.` };
  const bytes = await file.arrayBuffer().catch(() => null);
  if (!bytes) return { refusal: `${name} cannot be read. A folder cannot be dropped: drop the files in it.` };
  const text = decode(new Uint8Array(bytes));
  if (text === null) return { refusal: `${name} is no text: only text files can be read.` };
  return text.trim() ? { text } : { refusal: `${name} is empty.` };
}

/** Decodes UTF-8, or UTF-16 with a byte order mark; null for anything else. */
function decode(bytes: Uint8Array): string | null {
  const encoding = bytes[0] === 0xff && bytes[1] === 0xfe ? 'utf-16le' : bytes[0] === 0xfe && bytes[1] === 0xff ? 'utf-16be' : 'utf-8';
  try {
    const text = new TextDecoder(encoding, { fatal: true }).decode(bytes);
    return text.includes('\0') ? null : text;
  } catch {
    return null;
  }
}

/** A code block whose fence is longer than any run of backticks in the text. */
function blockOf(name: string, text: string): string {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([ticks]) => ticks.length));
  const fence = '`'.repeat(longest + 1);
  const language = /\.(\w{1,12})$/.exec(name)?.[1].toLowerCase() ?? '';
  return `${name}\n\n${fence}${language}\n${text.replace(/\r\n/g, '\n').replace(/\n$/, '')}\n${fence}`;
}
