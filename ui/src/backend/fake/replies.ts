export const HOSTILE = `# Not what it seems

<script>window.__pwned = 'script'</script>

<img src=x onerror="window.__pwned = 'onerror'">

[a link](javascript:window.__pwned='link') and [another](data:text/html,<script>window.__pwned='data'</script>) and <a href="javascript:window.__pwned='a'">raw</a>.

<svg onload="window.__pwned='svg'"><script>window.__pwned='svg-script'</script></svg>

<style>body { display: none }</style>

<iframe srcdoc="<script>parent.__pwned='iframe'</script>"></iframe>

<!-- a comment --><math><mtext><table><mglyph><style><img src=x onerror="window.__pwned='mxss'">

![tracking pixel](https://example.invalid/pixel.png)

<button data-copy="code" onclick="window.__pwned='button'">Copy</button> <div style="position:fixed;inset:0;background:red">over everything</div>

\`\`\`html
<script>window.__pwned = 'code'</script>
\`\`\`

\`\`\`"><img src=x onerror=window.__pwned='lang'>
fence
\`\`\`

A [true link](https://example.com/page?a=1&b="2") stays.
`;

export const CODE = `A generator keeps only what it needs in hand, so the file may be as large as it likes:

\`\`\`python
from collections import Counter
from pathlib import Path

def words(path: Path):
    """Yield words one by one; the file is never read whole."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield from line.lower().split()

counts = Counter(words(Path("moby-dick.txt")))
for word, n in counts.most_common(10):
    print(f"{n:>6}  {word}")
\`\`\`

Three things to notice:

1. \`yield from\` hands each line's words on without building a list.
2. \`Counter\` grows with the *vocabulary*, not with the text.
3. The \`with\` block closes the file even when the loop is left early.

For several files, chain them: \`Counter(chain.from_iterable(map(words, paths)))\`.
`;

export const TABLE = `They differ mostly in what they keep:

| Method | Keeps | Cost of an edit | Memory |
|:--|:--|--:|--:|
| Read again | nothing | whole prompt | none |
| Sliding window | the last part | the window | fixed |
| Prefix cache | everything before the edit | **the suffix** | grows |

The last row is why an early change costs more than a late one: what follows the edit was computed *knowing* the old words, and has to be computed again.

> A cache that may be deleted at any time is a cache one can trust.
`;

export const FORMULAS = String.raw`The roots of \(a_1 x^2 + b_1 x + c_1 = 0\) are

\[
x_{1,2} = \frac{-b_1 \pm \sqrt{b_1^2 - 4 a_1 c_1}}{2 a_1}
\]

and for $a_1 = 1$, $b_1 * b_1 > 4 c_1$ there are two of them:

$$
\begin{cases}
x_1 + x_2 = -b_1 \\
x_1 * x_2 = c_1
\end{cases}
$$

A table of them costs $5 to $6.
`;

export const PROSE = `Steam keeps the crust soft for the first minutes, so the loaf can still grow. When the surface dries too early it sets, and the rising crumb tears it open wherever it happens to be weakest.

**In a home oven** the simplest way is a heavy pot with a lid:

- heat the pot with the oven, at least forty minutes at 250 °C;
- lower the loaf in on a sheet of paper and score it at once;
- bake twenty minutes with the lid on, then twenty without.

The lid holds the water that the dough itself gives off. That is enough: no tray of water, no ice cubes, no spraying of hot glass.

What you should see when you lift the lid is a pale, swollen, slightly glossy loaf. The colour comes in the second half.
`;

export const RTL = `السلام عليكم! نعم، يمكنني المساعدة.

ابدأ بالخطوات التالية:

1. اكتب الفكرة الرئيسية في جملة واحدة.
2. رتّب الأمثلة من الأبسط إلى الأصعب.
3. راجع النص بصوت عالٍ.

الأرقام مثل 3 120 والكلمات مثل \`prefix cache\` تبقى في مكانها.
`;

const ALL = [PROSE, TABLE, CODE];

/** Five thousand words, as they come: prose, tables and code in turn, or all in one list or one program. */
const NOVEL = Array.from({ length: 17 }, () => [PROSE, TABLE, CODE].join('\n')).join('\n');
const LIST = Array.from({ length: 420 }, (_, index) => `${index + 1}. the **loaf** of day ${index + 1} had a crust like \`glass\` and a crumb like lace`).join('\n');
const PROGRAM = `\`\`\`python\n${Array.from({ length: 480 }, (_, index) => `def loaf_${index}(hours: int = ${index}) -> str:  # ${'crust and crumb '.repeat(index % 9)}\n    return f"loaf {hours}"`).join('\n')}\n\`\`\`\n`;

/** A canned answer that fits a little. */
export function replyTo(text: string, turn: number, hostile: boolean): string {
  if (hostile || /hostile/i.test(text)) return HOSTILE;
  const long = { novel: NOVEL, list: LIST, program: PROGRAM }[/endless (novel|list|program)/i.exec(text)?.[1].toLowerCase() ?? ''];
  if (long) return long;
  if (/at length|essay/i.test(text)) return [PROSE, TABLE, CODE, PROSE, TABLE].join('\n');
  if (/[\u0590-\u06ff]/.test(text)) return RTL;
  if (/code|python|program/i.test(text)) return CODE;
  if (/formula|equation|maths/i.test(text)) return FORMULAS;
  if (/table|compare|differ/i.test(text)) return TABLE;
  if (/bread|loaf|oven|steam|crust/i.test(text)) return PROSE;
  if (/brief|short|one word/i.test(text)) return 'Yes.';
  return ALL[turn % ALL.length];
}

/** The rest of a reply that was cut off. Text that begins none of the known replies is followed by a new reply. */
export function restOf(said: string, thought: string, text: string, turn: number, hostile: boolean): string {
  const whole = ALL.map((_, at) => thought + replyTo(text, turn + at, hostile)).find((answer) => answer.startsWith(said) && answer !== said);
  return whole?.slice(said.length) ?? ` ${replyTo(text, turn, hostile)}`;
}
