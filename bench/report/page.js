// The script of a report: the browser of items, copying, and saving everything as
// JSON. Texts come from runs and may hold anything, so they reach the page as text
// nodes alone.
(() => {
  'use strict';

  const source = document.getElementById('report-data');
  const report = JSON.parse(source.textContent);
  const said = document.getElementById('said');

  // visible shows what a terminal would obey as pictures, as the Go side does.
  const visible = (text) => text.replace(/\r\n/g, '\n').replace(/[\t\u2028\u2029]/g, ' ')
    .replace(/[\u0000-\u0009\u000b-\u001f]/g, (c) => String.fromCharCode(0x2400 + c.charCodeAt(0)))
    .replace(/\u007f/g, '\u2421').replace(/[\u0080-\u009f\u202a-\u202e\u2066-\u2069]/g, '\ufffd');

  const element = (name, attributes, ...children) => {
    const e = document.createElement(name);
    for (const [k, v] of Object.entries(attributes || {})) e.setAttribute(k, v);
    e.append(...children.map((c) => (typeof c === 'string' ? visible(c) : c)));
    return e;
  };
  const drawn = (name, attributes, text) => {
    const e = document.createElementNS('http://www.w3.org/2000/svg', name);
    for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
    if (text !== undefined) e.textContent = visible(text);
    return e;
  };
  const count = (n) => n.toLocaleString('en');
  const percent = (v) => (100 * v).toFixed(v > 0 && v < 0.01 ? 1 : 0) + ' %';

  // Copying and saving.
  const copy = async (pre, button) => {
    const before = button.textContent;
    try {
      await navigator.clipboard.writeText(pre.textContent);
    } catch {
      const folded = pre.closest('details');
      if (folded) folded.open = true;
      getSelection().selectAllChildren(pre);
      if (!document.execCommand('copy')) {
        said.textContent = 'Selected; copy it with the keyboard';
        return;
      }
    }
    button.textContent = said.textContent = 'Copied';
    setTimeout(() => { button.textContent = before; }, 1500);
  };
  for (const tools of document.querySelectorAll('.tools')) {
    const button = element('button', { type: 'button', 'aria-label': tools.dataset.button + ': ' + tools.dataset.copies }, tools.dataset.button);
    button.addEventListener('click', () => copy(tools.querySelector('pre'), button));
    tools.prepend(button);
  }

  // The blocks of a long list lie beside the report in compressed packs: they are read
  // when an item is opened, searched or saved.
  const packsOf = (section) => {
    const packs = [...document.querySelectorAll(`script.pack[data-section="${section}"]`)];
    const read = async (k) => {
      const bytes = Uint8Array.from(atob(packs[k].textContent), (c) => c.charCodeAt(0));
      return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))).json();
    };
    return { count: packs.length, size: Number(packs[0]?.dataset.items), read };
  };
  const packed = document.querySelector('script.pack') !== null;
  // saved is the whole report, in parts: one string of a long list may be too long.
  const saved = async () => {
    const parts = [];
    for (const [i, section] of report.sections.entries()) {
      const packs = packsOf(i);
      if (!packs.count) {
        parts.push(i ? ',' : '', JSON.stringify(section));
        continue;
      }
      const { browser, ...rest } = section;
      parts.push(i ? ',' : '', JSON.stringify({ ...rest, browser: { ...browser, items: [] } }).slice(0, -']}}'.length));
      for (let k = 0, n = 0; k < packs.count; k++) {
        for (const blocks of await packs.read(k)) {
          parts.push(n ? ',' : '', JSON.stringify({ ...browser.items[n++], blocks }));
        }
      }
      parts.push(']}}');
    }
    return ['{"sections":[', ...parts, ']}'];
  };
  const save = element('a', { download: 'report.json', class: 'button' }, 'Save as JSON');
  const linkTo = (parts) => URL.createObjectURL(new Blob(parts, { type: 'application/json' }));
  if (packed) {
    save.href = '#';
    save.addEventListener('click', async (e) => {
      if (save.href.startsWith('blob:')) return;
      e.preventDefault();
      said.textContent = 'Reading everything';
      save.href = linkTo(await saved());
      said.textContent = '';
      save.click();
    });
  } else {
    save.href = linkTo([source.textContent]);
  }
  document.querySelector('header').append(save);

  // An open item.
  const curve = (block) => {
    const turns = block.turns.filter((t) => t.value !== undefined);
    if (turns.length < 2) return '';
    const left = 34, top = 16, height = 74, step = 40;
    const width = left + step * turns.length;
    const x = (i) => left + step * (i + 0.5);
    const y = (v) => top + height * (1 - v);
    const svg = drawn('svg', { class: 'curve', viewBox: `0 0 ${width} ${top + height + 20}`, width, role: 'img',
      'aria-label': block.value + ' after each turn: ' + turns.map((t) => `${t.name}: ${t.value.toFixed(2)}` + (t.marks ? ` (${t.marks.join(', ')})` : '')).join('; ') });
    for (const v of [0, 0.5, 1]) {
      svg.append(drawn('line', { x1: left, x2: width, y1: y(v), y2: y(v) }),
        drawn('text', { x: left - 6, y: y(v) + 4, 'text-anchor': 'end' }, String(v)));
    }
    turns.forEach((t, i) => {
      if (t.marks) {
        svg.append(drawn('line', { class: 'mark', x1: x(i), x2: x(i), y1: top, y2: top + height }),
          drawn('text', { class: 'mark', x: x(i), y: top - 5, 'text-anchor': 'middle' }, t.marks.map((m) => m.split(' ')[0]).join(', ')));
      }
      svg.append(drawn('text', { x: x(i), y: top + height + 15, 'text-anchor': 'middle' }, t.name || ''));
    });
    svg.append(drawn('polyline', { points: turns.map((t, i) => `${x(i)},${y(t.value)}`).join(' ') }));
    turns.forEach((t, i) => svg.append(drawn('circle', { cx: x(i), cy: y(t.value), r: 3 })));
    return element('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': block.value + ' as a curve' }, svg);
  };
  const shares = (names, values) => {
    const top = values.reduce((best, v, i) => (v > values[best] ? i : best), 0);
    const bars = element('span', { class: 'shares', role: 'img', 'aria-label': names.map((n, i) => `${n} ${percent(values[i])}`).join(', ') });
    bars.title = bars.getAttribute('aria-label');
    values.forEach((v, i) => {
      const bar = element('span', i === top ? { class: 'top' } : {});
      bar.style.height = 100 * v + '%';
      bars.append(bar);
    });
    return element('span', { class: 'measured' }, bars, `${names[top]} ${percent(values[top])}`);
  };
  const mostSaid = 220; // characters
  const turn = (block, t) => {
    const head = element('p', { class: 'who' }, element('b', {}, [t.name, t.speaker].filter(Boolean).join(' · ')));
    for (const m of t.marks || []) head.append(' ', element('span', { class: 'tag' }, m));
    if (t.value !== undefined) {
      const meter = element('span', { class: 'meter', 'aria-hidden': 'true' }, element('span'));
      meter.firstChild.style.width = 100 * Math.min(1, Math.max(0, t.value)) + '%';
      head.append(' ', element('span', { class: 'measured' }, meter, `${block.value} ${t.value.toFixed(2)}`));
    }
    if (t.shares) head.append(' ', shares(block.shares, t.shares));
    if (t.unscored) head.append(' ', element('span', { class: 'unscored' }, 'unscored: ' + t.unscored));
    const item = element('li', {}, head);
    if (!t.text) return item;
    const text = element('p', { class: 'said', dir: 'auto' }, t.text);
    item.append(text);
    if (block.beside && t.text.length > mostSaid) { // columns are narrow: a long text is cut until it is asked for
      text.classList.add('short');
      const all = element('button', { type: 'button', 'aria-expanded': 'false' }, 'Show all');
      all.addEventListener('click', () => {
        all.setAttribute('aria-expanded', String(!text.classList.toggle('short')));
        all.textContent = text.classList.contains('short') ? 'Show all' : 'Show less';
      });
      item.append(all);
    }
    return item;
  };
  // legend explains the bars of a distribution, where a part of an item has them.
  const legend = (blocks) => {
    const names = blocks.find((b) => b.shares && (b.turns || []).some((t) => t.shares))?.shares;
    if (!names) return '';
    return element('p', { class: 'note legend' }, shares(names, names.map((n, i) => (i === 1 ? 1 : 0.4))).firstChild,
      `bars from left to right: ${names.join(', ')}; the highest is coloured and named`);
  };
  const part = (b) => {
    const place = element('div', { class: b.turns && !b.beside ? 'part turned' : 'part' });
    if (b.title) place.append(element('h3', {}, b.title));
    for (const n of b.notes || []) place.append(element('p', { class: 'note', dir: 'auto' }, n));
    if (b.facts) {
      const list = element('dl');
      for (const [k, v] of b.facts) list.append(element('div', v.length > 24 ? { class: 'wide' } : {}, element('dt', {}, k), element('dd', { dir: 'auto' }, v)));
      place.append(list);
    }
    if (b.turns) {
      if (b.value) place.append(curve(b));
      place.append(element('ol', { class: 'turns' }, ...b.turns.map((t) => turn(b, t))));
    }
    if (b.text) place.append(element('pre', { class: 'text', dir: 'auto', tabindex: '0' }, b.text));
    return place;
  };
  const opened = (blocks) => {
    const body = element('div', { class: 'blocks' }, legend(blocks));
    let row = null;
    for (const b of blocks) {
      if (!b.beside) row = null;
      else if (!row) body.append(row = element('div', { class: 'beside' }));
      (row || body).append(part(b));
    }
    return body;
  };

  // texts adds every text of an item, for searching.
  const texts = (v, into) => {
    if (typeof v === 'string') into.push(v);
    else if (v && typeof v === 'object') for (const x of Object.values(v)) texts(x, into);
    return into;
  };

  const mostRows = 2000; // that stand in the page at once

  const browse = (place, browser, packs) => {
    const items = browser.items || [];
    const facets = (browser.facets || []).map((f, i) => {
      const values = new Map((f.order || []).map((v) => [v, 0]));
      for (const it of items) for (const v of it.facets[i] || []) values.set(v, (values.get(v) || 0) + 1);
      for (const [v, n] of values) if (!n) values.delete(v);
      const rank = new Map([...values.keys()].map((v, k) => [v, k]));
      return { name: f.name, index: i, values, rank };
    });
    // What is the same everywhere tells items not apart.
    const shown = facets.filter((f) => f.values.size > 1 || (f.values.size === 1 && [...f.values.values()][0] < items.length));
    const measures = (browser.measures || []).map((name, index) => ({ name, index }))
      .filter((m) => items.some((it) => it.measures[m.index] !== null));
    for (const m of measures) m.digits = items.every((it) => Number.isInteger(it.measures[m.index] ?? 0)) ? 0 : 2;

    const cell = (name, value) => (value === '' ? ''
      : element('span', { class: 'cell' }, element('span', { class: 'key' }, name + ' '), element('span', { dir: 'auto' }, value)));
    const rows = items.map((item, i) => ({ item, i, li: null, details: null, built: false, haystack: null }));
    const byDetails = new Map();
    const make = (row) => {
      const { item } = row;
      const summary = element('summary', {}, element('span', { class: 'cell title' }, item.title),
        ...shown.map((f) => cell(f.name, (item.facets[f.index] || []).join(', '))),
        ...measures.map((m) => cell(m.name, item.measures[m.index]?.toFixed(m.digits).replace('-', '−') ?? '')),
        item.note ? element('span', { class: 'cell reason', dir: 'auto' }, item.note) : '');
      row.details = element('details', {}, summary);
      row.li = element('li', {}, row.details);
      byDetails.set(row.details, row);
    };
    const list = element('ul', { class: 'items' });
    const blocksOf = async (row) => (packs.count ? (await packs.read(Math.floor(row.i / packs.size)))[row.i % packs.size] : row.item.blocks) || [];
    // An item's address is its run, where there are several, and its title.
    const run = facets.find((f) => f.name === 'run');
    const runOf = (row) => (run ? row.item.facets[run.index] || [] : []).join(', ');
    const address = (row) => '#' + encodeURIComponent(`${browser.name}/${runOf(row)}/${row.item.title}`);
    const build = async (row) => {
      row.built = true;
      const body = element('div', { class: 'body' });
      const bar = element('p', { class: 'bar' }, element('a', { href: address(row) }, 'Link to this one'));
      const sides = element('div', { class: 'sides' }, opened(await blocksOf(row)));
      for (const other of rows) {
        if (other === row || other.item.title !== row.item.title) continue;
        const button = element('button', { type: 'button', 'aria-pressed': 'false' }, 'Beside: ' + runOf(other));
        button.addEventListener('click', async () => {
          const show = button.getAttribute('aria-pressed') === 'false';
          for (const b of bar.querySelectorAll('button')) b.setAttribute('aria-pressed', 'false');
          while (sides.children.length > 1) sides.lastChild.remove();
          sides.classList.toggle('two', show);
          button.setAttribute('aria-pressed', String(show));
          if (show) sides.append(opened(await blocksOf(other)));
        });
        bar.append(' ', button);
      }
      body.append(bar, sides);
      row.details.append(body);
    };
    list.addEventListener('toggle', (e) => { // toggle does not bubble: caught on its way down
      const row = byDetails.get(e.target);
      if (row && !row.built) build(row);
    }, true);

    const ready = (row, blocks) => { row.haystack = texts([row.item, blocks], []).join('\n').toLowerCase(); };
    let reading = false;
    const readAll = async () => { // what is packed, for the search
      if (reading) return;
      reading = true;
      for (let k = 0; k < packs.count; k++) {
        (await packs.read(k)).forEach((blocks, i) => ready(rows[k * packs.size + i], blocks));
        filter();
      }
    };

    const search = element('input', { type: 'search', autocomplete: 'off', spellcheck: 'false' });
    const selects = shown.map((f) => {
      const s = element('select', {}, element('option', { value: '' }, 'all'));
      for (const [v, n] of f.values) {
        const o = element('option', {}, `${v} (${count(n)})`);
        o.value = v;
        s.append(o);
      }
      return s;
    });
    const orders = [{ name: 'as given', of: (r) => r.i }, { name: browser.title || 'title', of: (r) => r.item.title },
      ...shown.map((f) => ({ name: f.name, of: (r) => { const v = r.item.facets[f.index]; return v && v.length ? f.rank.get(v[0]) : null; } })),
      ...measures.map((m) => ({ name: m.name, of: (r) => r.item.measures[m.index] }))];
    const sort = element('select', {}, ...orders.map((o, i) => element('option', { value: String(i) }, o.name)));
    const descending = element('input', { type: 'checkbox' });
    const status = element('p', { role: 'status', class: 'status' });
    const clear = element('button', { type: 'button' }, 'Clear');

    const more = element('button', { type: 'button' });
    let sorted = rows;
    let most = mostRows;
    const filter = () => {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      let left = 0;
      let unread = 0;
      let moved = false;
      const visibleRows = [];
      for (const r of sorted) {
        let keep = shown.every((f, k) => !selects[k].value || (r.item.facets[f.index] || []).includes(selects[k].value));
        if (keep && words.length) {
          if (r.haystack === null && !packs.count) ready(r, r.item.blocks);
          unread += r.haystack === null;
          keep = r.haystack !== null && words.every((w) => r.haystack.includes(w));
        }
        if (keep && left < most) {
          if (!r.li) make(r);
          moved ||= !r.li.isConnected;
          visibleRows.push(r.li);
        }
        if (r.li && r.li.hidden === (keep && left < most)) r.li.hidden = !r.li.hidden;
        if (keep) left++;
      }
      if (moved) list.replaceChildren(...visibleRows);
      more.hidden = left <= most;
      more.textContent = `Show ${count(Math.min(mostRows, left - most))} more`;
      status.textContent = `${count(left)} of ${count(rows.length)} ${visible(browser.name)}` + (unread ? `, ${count(unread)} still to be read` : '');
      if (unread) readAll();
    };
    more.addEventListener('click', () => {
      most += mostRows;
      filter();
    });
    const collator = new Intl.Collator('en', { numeric: true });
    const reorder = () => {
      const of = orders[sort.value].of;
      const sign = descending.checked ? -1 : 1;
      const keyed = rows.map((r) => [of(r), r]);
      keyed.sort(([a, r], [b, s]) => {
        if (a === null || b === null) return (a === null) - (b === null) || r.i - s.i; // the unknown comes last
        return sign * (typeof a === 'string' ? collator.compare(a, b) : a - b) || r.i - s.i;
      });
      sorted = keyed.map(([, r]) => r);
      list.replaceChildren();
      filter();
    };
    search.addEventListener('input', filter);
    selects.forEach((s) => s.addEventListener('change', filter));
    sort.addEventListener('change', reorder);
    descending.addEventListener('change', reorder);
    clear.addEventListener('click', () => {
      search.value = '';
      selects.forEach((s) => { s.value = ''; });
      filter();
      search.focus();
    });

    const labelled = (name, control) => element('label', control.type === 'checkbox' ? { class: 'check' } : {}, element('span', {}, name), control);
    const controls = element('form', { class: 'controls', role: 'search', 'aria-label': 'Filter and sort ' + browser.name },
      labelled('search', search), ...shown.map((f, k) => labelled(f.name, selects[k])), labelled('sort by', sort), labelled('descending', descending), clear);
    controls.addEventListener('submit', (e) => e.preventDefault());
    place.replaceChildren(controls, status, list, more);
    filter();
    const go = () => {
      const at = rows.findIndex((r) => location.hash.length > 1 && address(r) === location.hash);
      if (at < 0) return;
      if (!rows[at].li?.isConnected || rows[at].li.hidden) {
        search.value = '';
        selects.forEach((s) => { s.value = ''; });
        most = Math.max(most, sorted.indexOf(rows[at]) + 1);
        filter();
      }
      rows[at].details.open = true;
      rows[at].li.scrollIntoView();
    };
    window.addEventListener('hashchange', go);
    go();
    if (packs.count) return;

    // Texts are made ready for the first search while the reader looks around.
    const later = window.requestIdleCallback || ((f) => setTimeout(() => f({ timeRemaining: () => 5 }), 50));
    let next = 0;
    const prepare = (deadline) => {
      while (next < rows.length && deadline.timeRemaining() > 1) {
        if (rows[next].haystack === null) ready(rows[next], rows[next].item.blocks);
        next++;
      }
      if (next < rows.length) later(prepare);
    };
    later(prepare);
  };
  for (const place of document.querySelectorAll('.browser')) {
    browse(place, report.sections[place.dataset.section].browser, packsOf(place.dataset.section));
  }
})();
