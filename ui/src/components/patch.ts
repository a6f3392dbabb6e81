import type { Action } from 'svelte/action';

/**
 * Shows HTML that is safe already, and changes no more of it than what differs from before: in a reply that is being
 * written a selection stays, a long line of code stays where it was scrolled to, and a button that is pressed is the same
 * when it is released.
 */
export const patched: Action<HTMLElement, string> = (node, html) => {
  node.innerHTML = html;
  return {
    update(next) {
      const template = document.createElement('template');
      template.innerHTML = next;
      patch(node, template.content);
    },
  };
};

function patch(node: Node, wanted: Node): void {
  let at = node.firstChild;
  for (let next = wanted.firstChild; next; ) {
    const following = next.nextSibling;
    if (!at) node.appendChild(next);
    else if (at.isEqualNode(next) || fits(at, next)) at = at.nextSibling;
    else {
      const replaced: ChildNode = at;
      at = at.nextSibling;
      node.replaceChild(next, replaced);
    }
    next = following;
  }
  while (at) {
    const superfluous: ChildNode = at;
    at = at.nextSibling;
    superfluous.remove();
  }
}

/** Makes `node` what is wanted; false when it is of another kind. */
function fits(node: Node, wanted: Node): boolean {
  if (node.nodeType !== wanted.nodeType || node.nodeName !== wanted.nodeName) return false;
  if (node instanceof CharacterData) setText(node, (wanted as CharacterData).data);
  else if (node instanceof Element) {
    setAttributes(node, wanted as Element);
    // What a copy button says for a moment is its own.
    if (!node.hasAttribute('data-copy')) patch(node, wanted);
  }
  return true;
}

function setText(node: CharacterData, text: string): void {
  const before = node.data;
  if (text === before) return;
  if (text.startsWith(before)) return node.appendData(text.slice(before.length));
  let same = 0;
  while (same < before.length && before[same] === text[same]) same += 1;
  node.replaceData(same, before.length - same, text.slice(same));
}

function setAttributes(node: Element, wanted: Element): void {
  for (const { name } of [...node.attributes]) if (!wanted.hasAttribute(name)) node.removeAttribute(name);
  for (const { name, value } of wanted.attributes) if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}
