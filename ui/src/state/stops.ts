// The text format of stop strings: one per line, with \n for a line end, \t for a tab and \\ for a backslash.

const SIGNS: Record<string, string> = { n: '\n', r: '\r', t: '\t', '\\': '\\' };

export function parseStops(text: string): string[] {
  return text
    .split('\n')
    .map((line) => line.replace(/\\([nrt\\])/g, (_, sign: string) => SIGNS[sign]))
    .filter((stop) => stop !== '');
}

export function showStops(stops: readonly string[]): string {
  return stops.map((stop) => stop.replace(/[\\\n\r\t]/g, (sign) => `\\${Object.keys(SIGNS).find((name) => SIGNS[name] === sign)}`)).join('\n');
}
