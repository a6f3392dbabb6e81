import { clearMocks, mockIPC } from '@tauri-apps/api/mocks';
import { afterEach, expect, test } from 'vitest';
import { openBackend } from '../../src/backend';
import { FakeBackend } from '../../src/backend/fake/fake';
import { tauriBackend } from '../../src/backend/tauri';
import type { TurnEvent } from '../../src/backend/types';

afterEach(() => {
  clearMocks();
  delete (window as { __TAURI_INTERNALS__?: unknown }).__TAURI_INTERNALS__;
});

interface ChannelLike {
  onmessage: (event: TurnEvent) => void;
}

test('commands go by their names with the arguments of the shell', async () => {
  const seen: [string, unknown][] = [];
  mockIPC((command, args) => {
    seen.push([command, args]);
    return null;
  });
  const backend = tauriBackend();
  await backend.createConversation('Be kind.', null);
  await backend.renameConversation('c', 'title');
  await backend.setSystemPrompt('c', 'text');
  await backend.setActiveLeaf('c', 'm');
  await backend.setWhenFull('c', 'compact');
  await backend.raiseContext();
  await backend.keepUnsent({ conversation: 'c', message: null, text: 'half' });
  await backend.draft('c', null, 'text');
  await backend.previewEdit('c', null, 'text');
  await backend.previewSystemPrompt('c', 'text');
  await backend.previewBeginning('Be kind.', 'text');
  await backend.exportConversation('c', 'markdown');
  await backend.saveConversation('c', 'json');
  await backend.stop('c');
  await backend.setZoom(1.25);
  await backend.view();
  expect(seen).toEqual([
    ['create_conversation', { systemPrompt: 'Be kind.', model: null }],
    ['rename_conversation', { id: 'c', title: 'title' }],
    ['set_system_prompt', { id: 'c', text: 'text' }],
    ['set_active_leaf', { conversation: 'c', message: 'm' }],
    ['set_when_full', { id: 'c', whenFull: 'compact' }],
    ['raise_context', {}],
    ['keep_unsent', { unsent: { conversation: 'c', message: null, text: 'half' } }],
    ['draft', { conversation: 'c', message: null, text: 'text' }],
    ['preview_edit', { conversation: 'c', message: null, text: 'text' }],
    ['preview_system_prompt', { conversation: 'c', text: 'text' }],
    ['preview_beginning', { systemPrompt: 'Be kind.', text: 'text' }],
    ['export_conversation', { id: 'c', format: 'markdown' }],
    ['save_conversation', { id: 'c', format: 'json' }],
    ['stop', { conversation: 'c' }],
    ['set_zoom', { zoom: 1.25 }],
    ['view', {}],
  ]);
});

test('a turn streams over a channel', async () => {
  mockIPC((command, args) => {
    expect(command).toBe('send_message');
    const { channel, text } = args as unknown as { channel: ChannelLike; text: string };
    channel.onmessage({ event: 'token', text: `${text}!` });
    return null;
  });
  const events: TurnEvent[] = [];
  await tauriBackend().sendMessage('c', null, 'hi', (event) => events.push(event));
  expect(events).toEqual([{ event: 'token', text: 'hi!' }]);
});

test('half characters never reach the shell: JSON cannot carry them', async () => {
  const seen: string[] = [];
  mockIPC((command, args) => {
    seen.push(`${command} ${JSON.stringify(args)}`);
    return null;
  });
  const backend = tauriBackend();
  const odd = 'a\ud800';
  await backend.sendMessage('c', null, odd, () => undefined);
  await backend.editMessage('c', 'm', odd, () => undefined);
  await backend.renameConversation('c', odd);
  await backend.setSystemPrompt('c', odd);
  await backend.search(odd);
  await backend.keepUnsent({ conversation: 'c', message: null, text: odd });
  await backend.draft('c', null, odd);
  await backend.previewEdit('c', null, odd);
  expect(seen).toHaveLength(8);
  for (const one of seen) {
    expect(one).toContain('a\ufffd');
    expect(one).not.toMatch(/ud800/i);
  }
});

test('a refusal arrives as the error of the shell', async () => {
  mockIPC(() => Promise.reject({ code: 'busy', message: 'later' }));
  await expect(tauriBackend().warm('c')).rejects.toEqual({ code: 'busy', message: 'later' });
});

test('what Tauri refuses with a line of text arrives as an error of the shell', async () => {
  mockIPC(() => Promise.reject('invalid args `sampling` for command `set_sampling`'));
  await expect(tauriBackend().warm('c')).rejects.toEqual({ code: 'invalid_argument', message: 'invalid args `sampling` for command `set_sampling`' });
});

test('the shell is used inside the shell, the fake elsewhere or when asked for', async () => {
  expect(await openBackend('http://127.0.0.1/')).toBeInstanceOf(FakeBackend);
  mockIPC(() => []);
  expect(await openBackend('tauri://localhost/')).not.toBeInstanceOf(FakeBackend);
  expect(await openBackend('tauri://localhost/?fake=empty')).toBeInstanceOf(FakeBackend);
});
