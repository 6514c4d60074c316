// What is shown is in the address behind "#", so that it can be kept, shared and gone back to.

export const read = () => new URLSearchParams(location.hash.slice(1));

// Empty values are left out.
export function link(values) {
  const given = Object.entries(values).filter(([, value]) => value !== '' && value !== null && value !== undefined);
  return `#${new URLSearchParams(given)}`;
}

export const toExchange = (id) => link({ exchange: id });

export function nameOf(params, names) {
  if (params.has('exchange')) return 'exchange';
  return names.includes(params.get('view')) ? params.get('view') : 'live';
}

// Puts values in the fields of a form; a choice that a select lacks is added.
export function setFields(form, params) {
  for (const field of form.elements) {
    if (!field.name || field === document.activeElement) continue;
    const value = params.get(field.name) ?? toFirst(field);
    if (field.tagName === 'SELECT' && ![...field.options].some((option) => option.value === value)) {
      field.add(new Option(value, value));
    }
    field.value = value;
  }
}

// Fields that are as they were at first stay out of the address.
export function fromFields(form) {
  const changed = [...form.elements].filter((field) => field.name && field.value !== toFirst(field));
  return link({ view: form.dataset.view, ...Object.fromEntries(changed.map((field) => [field.name, field.value])) });
}

function toFirst(field) {
  const options = [...field.options ?? []];
  return (options.find((option) => option.defaultSelected) ?? options[0])?.value ?? '';
}
