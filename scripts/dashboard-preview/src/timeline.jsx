// State timelines: Grafana keeps its own out of its libraries. Values, texts and colours come from the field's display.
const AXIS = 22, PAD = 3;

function spans(times, values, end) {
  const found = [];
  for (let i = 0; i < times.length; i++) {
    const until = i + 1 < times.length ? times[i + 1] : end;
    const last = found.at(-1);
    if (last && last.value === values[i]) last.until = until;
    else found.push({ value: values[i], from: times[i], until });
  }
  return found;
}

export function StateTimeline({ rows, range, width, height, theme }) {
  const [start, end] = [range.from.valueOf(), range.to.valueOf()];
  const font = 12, left = Math.min(width / 3, 8 + Math.max(...rows.map((row) => row.name.length)) * font * 0.56);
  const x = (time) => left + ((time - start) / (end - start)) * (width - left);
  const tall = (height - AXIS) / rows.length;
  const ticks = [0.125, 0.375, 0.625, 0.875].map((share) => start + share * (end - start));
  return (
    <svg width={width} height={height} fontFamily={theme.typography.fontFamily} fontSize={font}>
      {rows.map((row, index) => (
        <g key={row.name}>
          <text x={left - 8} y={(index + 0.5) * tall} textAnchor="end" dominantBaseline="middle" fill={theme.colors.text.primary}>{row.name}</text>
          {spans(row.times, row.field.values, end).map((span) => {
            const shown = row.field.display(span.value), room = x(span.until) - x(span.from);
            return (
              <g key={span.from}>
                <rect x={x(span.from)} y={index * tall + PAD} width={Math.max(1, room)} height={tall - 2 * PAD} fill={shown.color} fillOpacity="0.7" stroke={shown.color} />
                {room > shown.text.length * 8 && <text x={x(span.from) + 6} y={(index + 0.5) * tall} dominantBaseline="middle" fill={theme.colors.getContrastText(shown.color)}>{shown.text}</text>}
              </g>
            );
          })}
        </g>
      ))}
      {ticks.map((tick) => (
        <text key={tick} x={x(tick)} y={height - 6} textAnchor="middle" fill={theme.colors.text.secondary}>{new Date(tick).toISOString().slice(11, 19)}</text>
      ))}
    </svg>
  );
}
