// Pictures of the window in both themes at three widths, for the eye.
import { mkdir } from 'node:fs/promises';

export const WIDTHS = [720, 1100, 1600];
export const THEMES = ['light', 'dark'];
const FOLDER = new URL('../../test-results/', import.meta.url).pathname;

const SCENES = {
  conversation: { fake: '', steps: openFirst },
  blank: { fake: '', steps: async () => {} },
  editing: {
    fake: '',
    steps: async (page) => {
      await openFirst(page);
      await page.locator('[data-testid=message][data-role=user]').last().getByTestId('edit').click({ force: true });
      await page.getByTestId('edit-text').fill('My loaf still splits along the side, although I cut it. What am I doing wrong?');
      await page.waitForTimeout(400);
    },
  },
  code: { fake: '', steps: (page) => openNth(page, 1) },
  table: { fake: '', steps: (page) => openNth(page, 2) },
  rtl: { fake: '', steps: (page) => openNth(page, 3) },
  'long-words': { fake: '', steps: (page) => openNth(page, 6) },
  settings: {
    fake: '',
    steps: async (page) => {
      await openFirst(page);
      await page.getByTestId('settings-open').click();
    },
  },
  memory: {
    fake: '',
    steps: async (page) => {
      await openFirst(page);
      await page.getByTestId('settings-open').click();
      await page.getByTestId('release-memory').waitFor();
      await page.getByTestId('memory').evaluate((section) => section.scrollIntoView());
    },
  },
  reading: {
    fake: 'slow',
    steps: async (page) => {
      await openFirst(page);
      await page.getByTestId('composer').fill(`Please read this as well. ${'The oven is old and leaks steam at the door. '.repeat(20)}`);
      await page.keyboard.press('Enter');
      await page.waitForTimeout(1700);
    },
  },
  search: {
    fake: '',
    steps: async (page) => {
      await page.keyboard.press('Control+k');
      await page.keyboard.type('oven');
      await page.getByTestId('search-hit').first().waitFor();
    },
  },
  'no-model': { fake: 'no-model,empty', steps: async () => {} },
  models: {
    fake: '',
    steps: async (page) => {
      await openFirst(page);
      await page.getByTestId('model-picker').click();
    },
  },
  deleted: {
    fake: '',
    steps: async (page) => {
      await openNth(page, 1);
      if (!(await page.getByTestId('search').isVisible())) await page.keyboard.press('Control+b');
      await page.getByTestId('conversation-item').first().focus();
      await page.keyboard.press('Delete');
      await page.getByTestId('toast').waitFor();
    },
  },
  pasted: {
    fake: 'fast,thinking',
    steps: async (page) => {
      await page.getByTestId('composer').fill(`Sum this up.\n\n${'A cache that may be deleted at any time is a cache one can trust.\n'.repeat(60)}`);
      await page.keyboard.press('Enter');
      await page.locator('[data-state=complete][data-role=assistant]').waitFor();
      await page.locator('.thought summary').click();
    },
  },
  'nearly-full': {
    fake: 'context:360',
    steps: async (page) => {
      await openFirst(page);
      await page.getByTestId('context-open').click();
    },
  },
  compacted: {
    fake: 'fast,context:360',
    steps: async (page) => {
      await openFirst(page);
      await page.getByTestId('context-open').click();
      await page.getByTestId('context-compact').click();
      await page.getByTestId('summary-label').waitFor();
    },
  },
  dropped: {
    fake: 'fast,context-full',
    steps: async (page) => {
      await openFirst(page);
      await page.getByTestId('composer').fill('And rye?');
      await page.keyboard.press('Enter');
      await page.getByTestId('remedy-drop_oldest').click();
      await page.getByTestId('left-out').waitFor();
      await page.locator('[data-state=generating]').waitFor({ state: 'detached' });
    },
  },
  error: {
    fake: 'error:model_missing',
    steps: async (page) => {
      await openFirst(page);
      await page.getByTestId('composer').fill('And what about rye?');
      await page.keyboard.press('Enter');
      await page.getByTestId('problem').waitFor();
    },
  },
};

async function openFirst(page) {
  await openNth(page, 0);
}

async function openNth(page, index) {
  if (!(await page.getByTestId('search').isVisible())) await page.keyboard.press('Control+b');
  await page.getByTestId('conversation-item').nth(index).click();
  await page.getByTestId('message').first().waitFor();
}

// These are laid out anew at other widths; the rest differs little.
const AT_EVERY_WIDTH = ['conversation', 'blank', 'editing', 'settings', 'search'];
const NORMAL_WIDTH = 1100;

export async function takeShots(browser, url, only = null, widths = WIDTHS, themes = THEMES) {
  await mkdir(FOLDER, { recursive: true });
  for (const theme of themes) {
    const context = await browser.newContext({ colorScheme: theme });
    for (const width of widths) {
      const names = only ?? (width === NORMAL_WIDTH ? Object.keys(SCENES) : AT_EVERY_WIDTH);
      for (const name of names) {
        const page = await context.newPage();
        await page.setViewportSize({ width, height: 860 });
        await page.goto(`${url}?fake=${SCENES[name].fake}`);
        await page.getByTestId('composer').waitFor();
        await SCENES[name].steps(page);
        await page.evaluate(() => document.fonts.ready);
        await page.waitForTimeout(150);
        await page.screenshot({ path: `${FOLDER}${name}-${theme}-${width}.png` });
        await page.close();
      }
    }
    await context.close();
  }
}
