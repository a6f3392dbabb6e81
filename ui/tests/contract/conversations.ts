import { begin, check, messages, refused, same, say, word, type Scenario } from './harness';

const NONE = '00000000-0000-7000-8000-000000000000';

export const conversations: Scenario[] = [
  {
    name: 'a new conversation is empty, has no title and stands first in the list',
    start: 'ready',
    async run(backend) {
      await begin(backend);
      const { id } = await backend.createConversation('Be kind.', null);
      const list = await backend.listConversations();
      same(list[0].id, id, 'the first of the list');
      const { conversation, messages } = await backend.getConversation(id);
      same([conversation.title, conversation.system_prompt, conversation.active_leaf, messages], ['', 'Be kind.', null, []], 'it');
      same([conversation.when_full, conversation.sampling.stop], ['ask', []], 'its settings');
    },
  },
  {
    name: 'the conversation in which something was said last stands first in the list',
    start: 'ready',
    async run(backend) {
      const older = await begin(backend);
      await begin(backend);
      await say(backend, older.id, 'Say one word.');
      same((await backend.listConversations())[0].id, older.id, 'the first of the list');
    },
  },
  {
    name: 'a name is kept without the spaces around it, and may be empty',
    start: 'ready',
    async run(backend) {
      const { id } = await begin(backend);
      await backend.renameConversation(id, '  Tea and bread \n');
      same((await backend.getConversation(id)).conversation.title, 'Tea and bread', 'the title');
      await backend.renameConversation(id, '   ');
      same((await backend.getConversation(id)).conversation.title, '', 'the title');
    },
  },
  {
    name: 'a title is the first line of the first message, and a name that was given stays',
    start: 'ready',
    async run(backend) {
      const first = await begin(backend);
      await say(backend, first.id, '  What is tea?\nIn one line.');
      same((await backend.getConversation(first.id)).conversation.title, 'What is tea?', 'the title');
      await say(backend, first.id, 'And coffee?');
      same((await backend.getConversation(first.id)).conversation.title, 'What is tea?', 'the title after another message');
      const second = await begin(backend);
      await backend.renameConversation(second.id, 'Mine');
      await say(backend, second.id, 'What is tea?');
      same((await backend.getConversation(second.id)).conversation.title, 'Mine', 'the name that was given');
    },
  },
  {
    name: 'a long first line becomes a title that ends between two words',
    start: 'ready',
    async run(backend) {
      const line = Array.from({ length: 40 }, (_, at) => `word${at}`).join(' ');
      const { id } = await begin(backend);
      await say(backend, id, line);
      const { title } = (await backend.getConversation(id)).conversation;
      check(title.endsWith('…') && title.length > 20 && title.length <= 70, `the title: ${title}`);
      check(line.startsWith(`${title.slice(0, -1)} `), `it ends inside a word: ${title}`);
    },
  },
  {
    name: 'what is set for a conversation is kept',
    start: 'ready',
    async run(backend) {
      const { id, sampling } = await backend.createConversation(null, null);
      const changed = { ...sampling, temperature: 0.25, top_k: 40, top_p: 0.5, min_p: null, repetition_penalty: 1.5, seed: 7, max_tokens: 99, stop: ['\n\n', 'End'] };
      await backend.setSampling(id, changed);
      await backend.setSystemPrompt(id, 'Be brief.');
      await backend.setWhenFull(id, 'drop_oldest');
      const { conversation } = await backend.getConversation(id);
      const sorted = (value: object) => Object.entries(value).sort();
      same(sorted(conversation.sampling), sorted(changed), 'how it samples');
      same([conversation.system_prompt, conversation.when_full], ['Be brief.', 'drop_oldest'], 'the rest');
    },
  },
  {
    name: 'numbers that are none are refused as an error of the shell, and nothing changes',
    start: 'ready',
    async run(backend) {
      const { id, sampling } = await backend.createConversation(null, null);
      await refused('invalid_argument', {
        'a negative top-k': backend.setSampling(id, { ...sampling, top_k: -1 }),
        'half a token': backend.setSampling(id, { ...sampling, max_tokens: 0.5 }),
        'a negative seed': backend.setSampling(id, { ...sampling, seed: -1 }),
      });
      same((await backend.getConversation(id)).conversation.sampling.top_k, sampling.top_k, 'top-k');
    },
  },
  {
    name: 'a conversation that is not there is refused everywhere',
    start: 'ready',
    async run(backend) {
      const { sampling } = await begin(backend);
      await refused('conversation_missing', {
        get: backend.getConversation(NONE),
        rename: backend.renameConversation(NONE, 'x'),
        delete: backend.deleteConversation(NONE),
        undo: backend.undoDelete(NONE),
        'system prompt': backend.setSystemPrompt(NONE, 'x'),
        sampling: backend.setSampling(NONE, sampling),
        'when full': backend.setWhenFull(NONE, 'stop'),
        export: backend.exportConversation(NONE, 'markdown'),
        unsent: backend.keepUnsent({ conversation: NONE, message: null, text: 'x' }),
        preview: backend.previewEdit(NONE, null, 'x'),
        context: backend.contextUse(NONE),
      });
      // These commands only begin something, and their outcome is not awaited.
      await backend.openConversation(NONE);
      await backend.warm(NONE);
      await backend.draft(NONE, null, 'half a');
      await backend.openConversation(null);
      await backend.stop(NONE);
    },
  },
  {
    name: 'a deleted conversation is gone with all that is in it, and comes back with all of it',
    start: 'ready',
    async run(backend) {
      const { id, sampling } = await begin(backend);
      const rare = word();
      await say(backend, id, `Say ${rare}.`);
      await backend.keepUnsent({ conversation: id, message: null, text: 'half a thought' });
      const before = await backend.getConversation(id);
      await backend.deleteConversation(id);
      await refused('conversation_missing', {
        get: backend.getConversation(id),
        rename: backend.renameConversation(id, 'x'),
        sampling: backend.setSampling(id, sampling),
        'delete again': backend.deleteConversation(id),
      });
      const there = async () => [
        (await backend.listConversations()).some((one) => one.id === id),
        (await backend.search(rare)).length > 0,
        (await backend.unsent()).some((one) => one.conversation === id),
      ];
      same(await there(), [false, false, false], 'listed, found, unsent');
      await backend.undoDelete(id);
      same(await there(), [true, true, true], 'listed, found, unsent');
      await backend.undoDelete(id);
      same(await backend.getConversation(id), before, 'what came back');
    },
  },
  {
    name: 'words that were not sent are kept by place, and are gone once they are sent',
    start: 'ready',
    async run(backend) {
      const { id } = await begin(backend);
      await say(backend, id, 'Say one word.');
      const [first] = await messages(backend, id);
      const kept = async () => (await backend.unsent()).filter((one) => one.conversation === id).map((one) => [one.message, one.text]);
      await backend.keepUnsent({ conversation: id, message: null, text: 'half' });
      await backend.keepUnsent({ conversation: id, message: first.id, text: 'otherwise' });
      await backend.keepUnsent({ conversation: id, message: null, text: 'half a thought' });
      same((await kept()).sort(), [[first.id, 'otherwise'], [null, 'half a thought']].sort(), 'what is kept');
      await say(backend, id, 'half a thought');
      same(await kept(), [[first.id, 'otherwise']], 'after it was sent');
      await backend.keepUnsent({ conversation: id, message: first.id, text: '' });
      same(await kept(), [], 'after it was emptied');
      await refused('message_missing', {
        'a message that is not there': backend.keepUnsent({ conversation: id, message: NONE, text: 'x' }),
        'a message without its conversation': backend.keepUnsent({ conversation: null, message: first.id, text: 'x' }),
      });
    },
  },
  {
    name: 'search finds every word in any order and case, and shows where',
    start: 'ready',
    async run(backend) {
      const { id } = await begin(backend);
      const [one, two] = [word(), word()];
      await say(backend, id, `The ${one} stands beside the ${two}.`);
      const [user] = await messages(backend, id);
      for (const text of [one, two.toUpperCase(), `${two} ${one}`, one.slice(0, -1)]) {
        const hits = await backend.search(text);
        const hit = hits.find((found) => found.message === user.id);
        check(hit !== undefined && hit.conversation === id, `${text} is not found: ${JSON.stringify(hits)}`);
        check((hit?.snippet ?? '').includes('stands'), `the words around it: ${hit?.snippet}`);
      }
      same(await backend.search(`${one} ${word()}`), [], 'a word that was never said');
      same(await backend.search('  '), [], 'nothing asked for');
    },
  },
  {
    name: 'an export holds the branch that is shown, and all of the tree as JSON',
    start: 'ready',
    async run(backend) {
      const { id } = await begin(backend);
      const [older, newer] = [word(), word()];
      await say(backend, id, `Say ${older}.`);
      const [first] = await messages(backend, id);
      await new Promise<void>((resolve) => {
        void backend.editMessage(id, first.id, `Say ${newer}.`, (event) => event.event === 'finished' && resolve());
      });
      await backend.renameConversation(id, 'Of words');
      const markdown = await backend.exportConversation(id, 'markdown');
      check(markdown.startsWith('# Of words\n'), `it begins with its title: ${markdown.slice(0, 40)}`);
      check(markdown.includes('\n## You\n') && markdown.includes('\n## Assistant'), 'each turn has its heading');
      same([markdown.includes(newer), markdown.includes(older)], [true, false], 'the branch that is shown, the other one');
      const json = JSON.parse(await backend.exportConversation(id, 'json')) as { conversation: { id: string }; messages: unknown[] };
      same([json.conversation.id, json.messages.length], [id, 4], 'the tree');
    },
  },
  {
    name: 'a window is told how the one before was left',
    start: 'ready',
    async run(backend) {
      const { id } = await backend.createConversation(null, null);
      await backend.openConversation(id);
      await backend.setZoom(1.25);
      same(await backend.view(), { zoom: 1.25, conversation: id }, 'how it was left');
      await backend.openConversation(null);
      await backend.setZoom(1);
      same(await backend.view(), { zoom: 1, conversation: null }, 'on the blank page');
      await refused('invalid_argument', { 'text of no size': backend.setZoom(0), 'text of ten times its size': backend.setZoom(10) });
    },
  },
];
