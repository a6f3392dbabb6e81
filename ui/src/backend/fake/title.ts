/** A title for a conversation that has none: the first words of its first message. */
export function titleFrom(text: string): string {
  const line = text.trim().split('\n', 1)[0].replace(/\s+/g, ' ').replace(/^[#>*\-\s]+/, '');
  if (line.length <= 56) return line;
  const cut = line.slice(0, 56);
  const space = cut.lastIndexOf(' ');
  return `${cut.slice(0, space > 24 ? space : 56)}…`;
}
