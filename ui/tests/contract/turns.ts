import { begin, check, likeliest, message, messages, refused, refusedTurns, same, say, Turn, type Scenario } from './harness';

const NONE = '00000000-0000-7000-8000-000000000000';
const LONG = 'Write a very long essay about bread, at length.';

export const turns: Scenario[] = [
  {
    name: 'a turn stores the words, then the reply, says how far it is and ends with what it cost',
    start: 'ready',
    async run(backend) {
      const { id } = await begin(backend, { max_tokens: 8 });
      const turn = new Turn((onEvent) => backend.sendMessage(id, null, 'Tell me about bread.', onEvent));
      const last = await turn.finished();
      const kinds = turn.events.map((event) => event.event).filter((event, at, all) => event !== all[at - 1]);
      same(kinds, ['started', 'prefill', 'token', 'finished'], 'the events, in order');
      const [first, second] = turn.events;
      check(first.event === 'started' && first.user?.text === 'Tell me about bread.' && first.reply === null, `the words first: ${JSON.stringify(first)}`);
      check(second.event === 'started' && second.reply?.state === 'generating', `then the reply: ${JSON.stringify(second)}`);
      const texts = turn.events.flatMap((event) => (event.event === 'token' ? [event.text] : []));
      same(last.text.trim(), texts.join('').trim(), 'the whole text and its pieces');
      const { resident, restored, computed } = last.prefill;
      same(resident + restored + computed, last.prompt_tokens, 'the counts together');
      check(last.completion_tokens > 0 && last.completion_tokens <= 8, `tokens of the reply: ${last.completion_tokens}`);
      const stored = await messages(backend, id);
      same(stored.map((one) => one.role), ['user', 'assistant'], 'what is stored');
      same([stored[1].id, stored[1].parent, stored[1].text, stored[1].state], [last.message, stored[0].id, last.text, last.state], 'the reply');
      same(stored[1].stats?.prompt_tokens, last.prompt_tokens, 'what is kept of its cost');
      same((await backend.getConversation(id)).conversation.active_leaf, last.message, 'the end of the branch');
    },
  },
  {
    name: 'reading goes forward only, and ends with the whole prompt',
    start: 'ready',
    async run(backend) {
      const { id } = await begin(backend);
      const turn = new Turn((onEvent) => backend.sendMessage(id, null, 'bread and tea '.repeat(80), onEvent));
      const { prompt_tokens } = await turn.finished();
      const read = turn.events.flatMap((event) => (event.event === 'prefill' ? [event] : []));
      check(read.length > 1, `it is said ${read.length} times`);
      check(read.every((event, at) => at === 0 || event.done >= read[at - 1].done), 'it goes back');
      check(read.every((event) => event.total === prompt_tokens && event.resident + event.restored <= event.done), JSON.stringify(read));
      same(read[read.length - 1].done, prompt_tokens, 'at the end');
    },
  },
  {
    name: 'who is told that a turn has ended may begin the next at once',
    start: 'ready',
    async run(backend) {
      const { id } = await begin(backend);
      let next: Turn | null = null;
      const first = new Turn((onEvent) =>
        backend.sendMessage(id, null, 'Tell me about bread.', (event) => {
          onEvent(event);
          if (event.event === 'finished') next = new Turn((onNext) => backend.sendMessage(id, null, 'And then?', onNext));
        }),
      );
      await first.finished();
      await (next as Turn | null)?.finished();
      same((await messages(backend, id)).map((one) => one.role), ['user', 'assistant', 'user', 'assistant'], 'what is stored');
    },
  },
  {
    name: 'what was read is not read again',
    start: 'ready',
    async run(backend) {
      const { id } = await begin(backend);
      const first = await say(backend, id, 'bread and tea '.repeat(60));
      const cost = await backend.previewEdit(id, null, 'And then?');
      check(cost.keeps >= first.prompt_tokens && cost.keeps < cost.of, `beforehand: ${JSON.stringify(cost)}`);
      const second = await say(backend, id, 'And then?');
      check(second.prefill.resident >= first.prompt_tokens && second.prefill.computed < 60, `the second turn: ${JSON.stringify(second.prefill)}`);
      const again = await new Turn((onEvent) => backend.regenerate(id, second.message, onEvent)).finished();
      same(again.prefill.computed, 1, 'tokens computed to write a reply again');
    },
  },
  {
    name: 'a reply ends at the limit on its tokens, and says so',
    start: 'ready',
    async run(backend) {
      const { id } = await begin(backend, { max_tokens: 1 });
      const cut = await say(backend, id, LONG);
      same([cut.state, cut.completion_tokens], ['length', 1], 'the reply');
      same((await message(backend, id, cut.message)).state, 'length', 'as it is stored');
    },
  },
  {
    name: 'a reply that was cut off goes on to what the one says that was not',
    start: 'ready',
    async run(backend) {
      const whole = await begin(backend, { max_tokens: 12 });
      const expected = await say(backend, whole.id, LONG);
      const { id } = await begin(backend, { max_tokens: 5 });
      const cut = await say(backend, id, LONG);
      await likeliest(backend, id, { max_tokens: 7 });
      const turn = new Turn((onEvent) => backend.continueReply(id, cut.message, onEvent));
      const last = await turn.finished();
      same(last.text, expected.text, 'its text');
      same(last.message, cut.message, 'it is the same message');
      same((await messages(backend, id)).length, 2, 'messages');
    },
  },
  {
    name: 'only a reply that was cut off can go on',
    start: 'ready',
    async run(backend) {
      const { id } = await begin(backend, { max_tokens: 6 });
      const first = await say(backend, id, LONG);
      const edited = new Turn((onEvent) => backend.editMessage(id, first.message, 'A whole reply.', onEvent));
      const whole = await edited.finished();
      const [user] = await messages(backend, id);
      await refusedTurns('invalid_argument', {
        'a whole reply': (onEvent) => backend.continueReply(id, whole.message, onEvent),
        'a message of the person': (onEvent) => backend.continueReply(id, user.id, onEvent),
      });
    },
  },
  {
    name: 'a stop string ends a reply before it',
    start: 'ready',
    async run(backend) {
      const { id } = await begin(backend, { max_tokens: 24 });
      const free = await say(backend, id, 'Tell me about bread.');
      const stop = free.text.slice(9, 15);
      await likeliest(backend, id, { max_tokens: 24, stop: [stop] });
      const ended = await new Turn((onEvent) => backend.regenerate(id, free.message, onEvent)).finished();
      same(ended.text.trimEnd(), free.text.slice(0, free.text.indexOf(stop)).trimEnd(), `the reply that ends before ${JSON.stringify(stop)}`);
      same(ended.state, 'complete', 'its state');
    },
  },
  {
    name: 'a refused turn stores nothing',
    start: 'ready',
    async run(backend) {
      const { id } = await begin(backend);
      const other = await begin(backend);
      await say(backend, other.id, 'Say one word.');
      const [elsewhere] = await messages(backend, other.id);
      await refusedTurns('invalid_argument', {
        'an empty message': (onEvent) => backend.sendMessage(id, null, ' \n', onEvent),
        'shortening nothing': (onEvent) => backend.shorten(id, 'drop_oldest', onEvent),
      });
      await refusedTurns('message_missing', {
        'a parent that is not there': (onEvent) => backend.sendMessage(id, NONE, 'x', onEvent),
        'a parent of another conversation': (onEvent) => backend.sendMessage(id, elsewhere.id, 'x', onEvent),
        'an edit': (onEvent) => backend.editMessage(id, NONE, 'x', onEvent),
        'writing again': (onEvent) => backend.regenerate(id, NONE, onEvent),
        'going on': (onEvent) => backend.continueReply(id, NONE, onEvent),
      });
      await refusedTurns('conversation_missing', {
        'a message': (onEvent) => backend.sendMessage(NONE, null, 'x', onEvent),
        'an edit': (onEvent) => backend.editMessage(NONE, elsewhere.id, 'x', onEvent),
        'writing again': (onEvent) => backend.regenerate(NONE, elsewhere.id, onEvent),
        'going on': (onEvent) => backend.continueReply(NONE, elsewhere.id, onEvent),
        'shortening': (onEvent) => backend.shorten(NONE, 'compact', onEvent),
      });
      const { conversation, messages: stored } = await backend.getConversation(id);
      same([stored, conversation.active_leaf, conversation.title], [[], null, ''], 'the conversation');
      await refused('message_missing', {
        'a branch that is not there': backend.setActiveLeaf(id, NONE),
        'a branch of another conversation': backend.setActiveLeaf(id, elsewhere.id),
        'the cost of an edit': backend.previewEdit(id, NONE, 'x'),
      });
    },
  },
  {
    name: 'a second message while a reply is written is refused as busy, and another conversation waits its turn',
    start: 'ready',
    async run(backend) {
      const { id } = await begin(backend, { max_tokens: 400 });
      const other = await begin(backend);
      const turn = new Turn((onEvent) => backend.sendMessage(id, null, LONG, onEvent));
      await turn.until((event) => event.event === 'token');
      const [user] = await messages(backend, id);
      await refusedTurns('busy', {
        'another message': (onEvent) => backend.sendMessage(id, null, 'Me too.', onEvent),
        'an edit': (onEvent) => backend.editMessage(id, user.id, 'Otherwise.', onEvent),
        'writing again': (onEvent) => backend.regenerate(id, user.id, onEvent),
        'shortening': (onEvent) => backend.shorten(id, 'drop_oldest', onEvent),
      });
      same((await messages(backend, id)).length, 2, 'messages');
      const waiting = new Turn((onEvent) => backend.sendMessage(other.id, null, 'Say one word.', onEvent));
      await waiting.until((event) => event.event === 'started');
      await backend.stop(id);
      await turn.finished();
      await waiting.finished();
    },
  },
  {
    name: 'a reply that is stopped keeps what was shown, and can go on',
    start: 'ready',
    async run(backend) {
      const { id } = await begin(backend, { max_tokens: 400 });
      const turn = new Turn((onEvent) => backend.sendMessage(id, null, LONG, onEvent));
      await turn.until((event) => event.event === 'token');
      await backend.stop(id);
      const last = await turn.finished();
      same(last.state, 'stopped', 'how it ended');
      same((await message(backend, id, last.message)).text, last.text, 'what is kept');
      await likeliest(backend, id, { max_tokens: 4 });
      const next = await new Turn((onEvent) => backend.continueReply(id, last.message, onEvent)).finished();
      check(next.text.startsWith(last.text.trimEnd()) && next.text.length > last.text.length, `${last.text} / ${next.text}`);
      await backend.stop(id);
    },
  },
  {
    name: 'a turn that is stopped while the prompt is read leaves an empty reply and counts what was read',
    start: 'ready',
    async run(backend) {
      const { id } = await begin(backend);
      const turn = new Turn((onEvent) => backend.sendMessage(id, null, 'bread or tea or '.repeat(900), onEvent));
      await turn.until((event) => event.event === 'prefill');
      await backend.stop(id);
      const last = await turn.finished();
      same([last.state, last.text, last.completion_tokens], ['stopped', '', 0], 'how it ended');
      const { resident, restored, computed } = last.prefill;
      check(resident + restored + computed < last.prompt_tokens, `all of it was read: ${JSON.stringify(last)}`);
      same((await messages(backend, id)).map((one) => one.state), ['complete', 'stopped'], 'what is stored');
    },
  },
  {
    name: 'a conversation that is deleted stops its reply, and its words are there when that is undone',
    start: 'ready',
    async run(backend) {
      const { id } = await begin(backend, { max_tokens: 400 });
      const turn = new Turn((onEvent) => backend.sendMessage(id, null, LONG, onEvent));
      await turn.until((event) => event.event === 'token');
      await backend.deleteConversation(id);
      await turn.end();
      await backend.undoDelete(id);
      const [, reply] = await messages(backend, id);
      same(reply.state, 'stopped', 'the reply');
      check(reply.text.length > 0, 'its words are gone');
    },
  },
  {
    name: 'an edited message is a branch beside the old one, which stays',
    start: 'ready',
    async run(backend) {
      const { id } = await begin(backend);
      const first = await say(backend, id, 'bread and tea '.repeat(40));
      const [old] = await messages(backend, id);
      const edited = await new Turn((onEvent) => backend.editMessage(id, old.id, `${'bread and tea '.repeat(40)}or not`, onEvent)).finished();
      check(edited.prefill.computed < 60, `an edit costs its suffix: ${JSON.stringify(edited.prefill)}`);
      const all = await messages(backend, id);
      same(all.map((one) => one.role), ['user', 'assistant', 'user', 'assistant'], 'the tree');
      same([all[2].parent, all[2].edited_from, all[3].parent], [null, old.id, all[2].id], 'the new branch');
      same([all[1].id, all[1].state], [first.message, first.state], 'the old reply');
      same((await backend.getConversation(id)).conversation.active_leaf, edited.message, 'the branch that is shown');
      await backend.setActiveLeaf(id, first.message);
      same((await backend.getConversation(id)).conversation.active_leaf, first.message, 'the branch that is turned back to');
    },
  },
  {
    name: 'an edited reply is stored beside the old one without a model, and the conversation goes on from it',
    start: 'ready',
    async run(backend) {
      const { id } = await begin(backend);
      const reply = await say(backend, id, 'Say one word.');
      const turn = new Turn((onEvent) => backend.editMessage(id, reply.message, 'My own words.', onEvent));
      const last = await turn.finished();
      same(turn.events.map((event) => event.event), ['started', 'finished'], 'the events');
      same([last.text, last.state, last.completion_tokens, last.prompt_tokens], ['My own words.', 'complete', 0, 0], 'the end');
      const stored = await message(backend, id, last.message);
      same([stored.role, stored.edited_from, stored.text], ['assistant', reply.message, 'My own words.'], 'what is stored');
      await say(backend, id, 'And another.');
      const [, , , next] = await messages(backend, id);
      same(next.parent, last.message, 'what the next message follows');
    },
  },
  {
    name: 'a reply that is written again stands beside the old one; a message without one is answered',
    start: 'ready',
    async run(backend) {
      const { id } = await begin(backend);
      const reply = await say(backend, id, 'Say one word.');
      const again = await new Turn((onEvent) => backend.regenerate(id, reply.message, onEvent)).finished();
      const [user, old, other] = await messages(backend, id);
      same([old.parent, other.parent, other.id], [user.id, user.id, again.message], 'the two');
      const third = await new Turn((onEvent) => backend.regenerate(id, user.id, onEvent)).finished();
      same((await message(backend, id, third.message)).parent, user.id, 'asked for by the message');
    },
  },
  {
    name: 'a message can follow an earlier one, and a new branch is shown',
    start: 'ready',
    async run(backend) {
      const { id } = await begin(backend);
      const first = await say(backend, id, 'Say one word.');
      await say(backend, id, 'And another.');
      const beside = await new Turn((onEvent) => backend.sendMessage(id, first.message, 'Something else.', onEvent)).finished();
      const all = await messages(backend, id);
      same([all[2].parent, all[4].parent], [first.message, first.message], 'two messages after one reply');
      same((await backend.getConversation(id)).conversation.active_leaf, beside.message, 'the branch that is shown');
    },
  },
];
