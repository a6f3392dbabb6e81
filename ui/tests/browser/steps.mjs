// Steps that the scenarios share.
export const id = (name) => `[data-testid="${name}"]`;
export const replies = (page) => page.locator(`${id('message')}[data-role="assistant"]`);
export const users = (page) => page.locator(`${id('message')}[data-role="user"]`);

export async function send(page, text) {
  await page.locator(id('composer')).fill(text);
  await page.keyboard.press('Enter');
}

export async function finished(page) {
  await page.locator(`${id('message')}[data-role="assistant"][data-state="generating"]`).waitFor({ state: 'detached', timeout: 30_000 });
}

export async function sendAndWait(page, text) {
  const before = await replies(page).count();
  await send(page, text);
  await page.waitForFunction((n) => document.querySelectorAll('[data-testid="message"][data-role="assistant"]').length > n, before);
  await finished(page);
}

export async function open(page, index = 0) {
  await page.locator(id('conversation-item')).nth(index).click();
  await page.locator(id('message')).first().waitFor();
}

export const numbers = async (line) => {
  const of = async (name) => Number(await line.getAttribute(`data-${name}`));
  return { resident: await of('resident'), restored: await of('restored'), computed: await of('computed') };
};

export const focused = (page) => page.evaluate(() => document.activeElement?.getAttribute('data-testid') ?? document.activeElement?.tagName);

export async function anchor(page) {
  return await page.evaluate(() => {
    const view = document.querySelector('[data-testid="messages"]').getBoundingClientRect();
    const node = [...document.querySelectorAll('[data-testid="message"]')].find((one) => one.getBoundingClientRect().bottom > view.top + 40);
    return { id: node.dataset.id, top: node.getBoundingClientRect().top };
  });
}

export async function position(page, messageId) {
  return await page.evaluate((wanted) => document.querySelector(`[data-id="${wanted}"]`)?.getBoundingClientRect().top ?? null, messageId);
}
