// Draws the dashboard with Grafana's own libraries (fields, units, thresholds, mappings, transformations, panel frames, time
// series, single values, bars, tables). What those do not hold is drawn here: the grid, and state timelines.
import {
  FieldConfigOptionsRegistry,
  FieldType,
  applyFieldOverrides,
  cacheFieldDisplayNames,
  createTheme,
  dateTime,
  getDisplayValueAlignmentFactors,
  getFieldDisplayName,
  getFieldDisplayValues,
  identityOverrideProcessor,
  standardTransformers,
  standardTransformersRegistry,
  toDataFrame,
  transformDataFrame,
} from "@grafana/data";
import { initPluginTranslations } from "@grafana/i18n";
import {
  BarGauge,
  BigValue,
  GlobalStyles,
  PanelChrome,
  ThemeContext,
  TimeSeries,
  VizLayout,
  VizLegend,
  VizRepeater,
} from "@grafana/ui";
import { TableNG } from "@grafana/ui/unstable";
import { Component } from "react";
import { createRoot } from "react-dom/client";
import { firstValueFrom } from "rxjs";
import { StateTimeline } from "./timeline.jsx";

const CELL = 30, GAP = 8; // Grafana's grid: 30 px a row, 8 px between
const params = new URLSearchParams(location.search);
const theme = createTheme({ colors: { mode: params.get("theme") ?? "dark" } });
const same = (text) => text;

// What the panels of Grafana take where a dashboard says nothing.
const THRESHOLDS = { mode: "absolute", steps: [{ value: -Infinity, color: "green" }, { value: 80, color: "red" }] };
const COLOR = { timeseries: "palette-classic", stat: "thresholds", bargauge: "thresholds", table: "thresholds", "state-timeline": "thresholds" };
const options = ["unit", "min", "max", "decimals", "displayName", "noValue", "thresholds", "mappings", "color"];
const registry = new FieldConfigOptionsRegistry(() =>
  options.map((id) => ({ id, path: id, name: id, settings: {}, process: identityOverrideProcessor, shouldApply: () => true })),
);
const SERIES = {
  drawStyle: "line", lineInterpolation: "linear", lineWidth: 1, fillOpacity: 0, gradientMode: "none", spanNulls: false,
  showPoints: "auto", pointSize: 5, axisPlacement: "auto", axisLabel: "", axisColorMode: "text", axisBorderShow: false,
  scaleDistribution: { type: "linear" }, stacking: { mode: "none", group: "A" }, thresholdsStyle: { mode: "off" },
  hideFrom: { tooltip: false, viz: false, legend: false }, axisCenteredZero: false, barAlignment: 0,
};

function named(legend, labels) {
  return legend.replace(/{{\s*(\w+)\s*}}/g, (_, label) => labels[label] ?? "");
}

function framesOf(panel, answers) {
  return panel.targets.flatMap((target, index) => {
    const results = answers[index];
    if (target.format === "table") {
      const labels = [...new Set(results.flatMap((each) => Object.keys(each.metric)))].sort();
      const name = panel.targets.length > 1 ? `Value #${target.refId}` : "Value";
      return [toDataFrame({
        refId: target.refId,
        fields: [
          { name: "Time", type: FieldType.time, values: results.map((each) => each.value[0] * 1000) },
          ...labels.map((label) => ({ name: label, type: FieldType.string, values: results.map((each) => each.metric[label] ?? "") })),
          { name, type: FieldType.number, values: results.map((each) => Number(each.value[1])) },
        ],
      })];
    }
    return results.map((each) => {
      const points = each.values ?? [each.value];
      return toDataFrame({
        refId: target.refId,
        fields: [
          { name: "Time", type: FieldType.time, values: points.map((point) => point[0] * 1000) },
          {
            name: "Value", type: FieldType.number, labels: each.metric, values: points.map((point) => Number(point[1])),
            config: { displayNameFromDS: named(target.legendFormat, each.metric) },
          },
        ],
      });
    });
  });
}

async function prepared(panel, answers) {
  const moved = await firstValueFrom(transformDataFrame(panel.transformations, framesOf(panel, answers)));
  const given = panel.fieldConfig.defaults;
  const kept = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== null));
  const steps = (kept.thresholds?.steps ?? THRESHOLDS.steps).map((step) => ({ ...step, value: step.value ?? -Infinity }));
  const defaults = { color: { mode: COLOR[panel.type] }, ...kept, thresholds: { mode: "absolute", steps } };
  const fieldConfig = { defaults, overrides: panel.fieldConfig.overrides };
  const frames = applyFieldOverrides({
    data: moved, fieldConfig, theme, timeZone: "utc", replaceVariables: same,
    fieldConfigRegistry: registry,
  });
  cacheFieldDisplayNames(frames);
  for (const frame of frames)
    for (const field of frame.fields)
      field.config = { ...field.config, custom: { ...(panel.type === "timeseries" ? SERIES : {}), ...kept.custom } };
  return { frames, fieldConfig };
}

function Bars({ panel, frames, fieldConfig, width, height }) {
  const reduceOptions = { calcs: ["lastNotNull"], values: false, ...panel.options.reduceOptions };
  const isStat = panel.type === "stat";
  const getValues = () => getFieldDisplayValues({ data: frames, reduceOptions, fieldConfig, replaceVariables: same, theme, timeZone: "utc" });
  const renderValue = ({ value, width, height, orientation, alignmentFactors, count }) =>
    isStat ? (
      <BigValue value={value.display} width={width} height={height} theme={theme} count={count} alignmentFactors={alignmentFactors}
        colorMode={panel.options.colorMode ?? "value"} graphMode="none" textMode={panel.options.textMode ?? "auto"} justifyMode="auto" />
    ) : (
      <BarGauge value={value.display} width={width} height={height} orientation={orientation} field={value.field} theme={theme} itemSpacing={8}
        display={value.view?.getFieldDisplayProcessor(value.colIndex ?? 0)} alignmentFactors={alignmentFactors} lcdCellWidth={12}
        displayMode={panel.options.displayMode ?? "gradient"} showUnfilled={panel.options.showUnfilled ?? true}
        valueDisplayMode={panel.options.valueMode ?? "color"} namePlacement={panel.options.namePlacement ?? "auto"} />
    );
  return (
    <VizRepeater source={frames} getValues={getValues} renderValue={renderValue} width={width} height={height} renderCounter={0}
      getAlignmentFactors={getDisplayValueAlignmentFactors} orientation={panel.options.orientation ?? "auto"} autoGrid={isStat}
      itemSpacing={isStat ? 3 : 8} minVizHeight={panel.options.minVizHeight ?? (isStat ? undefined : 16)} minVizWidth={panel.options.minVizWidth ?? 8}
      maxVizHeight={panel.options.maxVizHeight ?? (isStat ? undefined : 300)} />
  );
}

function Timeline({ panel, frames, range, width, height }) {
  const mappings = panel.fieldConfig.defaults.mappings?.[0]?.options ?? {};
  const items = Object.values(mappings).map((each) => ({ label: each.text, color: theme.visualization.getColorByName(each.color), yAxis: 1 }));
  const legend = panel.options.legend?.showLegend && items.length ? <VizLayout.Legend placement="bottom"><VizLegend items={items} displayMode="list" placement="bottom" /></VizLayout.Legend> : null;
  const rows = frames.map((frame) => ({ name: getFieldDisplayName(frame.fields[1], frame, frames), field: frame.fields[1], times: frame.fields[0].values }));
  return (
    <VizLayout width={width} height={height} legend={legend}>
      {(w, h) => <StateTimeline rows={rows} range={range} width={w} height={h} theme={theme} />}
    </VizLayout>
  );
}

function Inside(props) {
  const { panel, frames, range, width, height } = props;
  const empty = !frames.length || frames.every((frame) => frame.length === 0);
  if (empty)
    return <div style={{ height, display: "grid", placeItems: "center", color: theme.colors.text.secondary }}>{panel.fieldConfig.defaults.noValue ?? "No data"}</div>;
  if (panel.type === "timeseries")
    return <TimeSeries frames={frames} width={width} height={height} timeRange={range} timeZone="utc" legend={{ calcs: [], ...panel.options.legend }} options={{}} />;
  if (panel.type === "table") return <TableNG data={frames[0]} width={width} height={height} />;
  if (panel.type === "state-timeline") return <Timeline {...props} />;
  return <Bars {...props} />;
}

class Safely extends Component {
  state = {};
  static getDerivedStateFromError(error) {
    return { error };
  }
  render() {
    return this.state.error ? <pre style={{ color: "red" }}>{String(this.state.error.stack)}</pre> : this.props.children;
  }
}

function Page({ dashboard, panels, range }) {
  const wide = document.documentElement.clientWidth - 2 * GAP;
  const column = (wide + GAP) / 24;
  const place = ({ x, y, w, h }) => ({ position: "absolute", left: GAP + x * column, top: 48 + y * (CELL + GAP), width: w * column - GAP, height: h * (CELL + GAP) - GAP });
  const bottom = Math.max(...dashboard.panels.map((each) => each.gridPos.y + each.gridPos.h));
  return (
    <div style={{ position: "relative", height: 56 + bottom * (CELL + GAP) }}>
      <h1 style={{ position: "absolute", left: 12, top: 10, fontSize: 18 }}>{dashboard.title}</h1>
      {dashboard.panels.map((panel, index) => {
        const at = place(panel.gridPos);
        if (panel.type === "row") return <div key={panel.id} style={{ ...at, padding: "6px 4px", fontWeight: 500 }}>{panel.title}</div>;
        return (
          <div key={panel.id} style={at}>
            <PanelChrome title={panel.title} description={panel.description} width={at.width} height={at.height}>
              {(width, height) => <Safely><Inside panel={panel} {...panels[index]} range={range} width={width} height={height} /></Safely>}
            </PanelChrome>
          </div>
        );
      })}
    </div>
  );
}

async function main() {
  await initPluginTranslations("preview", []);
  const wanted = ["merge", "organize", "labelsToFields", "renameByRegex", "filterFieldsByName"];
  const known = Object.values(standardTransformers).filter((each) => wanted.includes(each.id));
  standardTransformersRegistry.setInit(() => known.map((each) => ({ id: each.id, name: each.name, transformation: async () => each })));
  const [dashboard, data] = await Promise.all(["dashboard.json", "data.json"].map(async (name) => (await fetch(name)).json()));
  const [from, to] = [dateTime(data.start * 1000), dateTime(data.end * 1000)];
  const range = { from, to, raw: { from, to } };
  const panels = await Promise.all(dashboard.panels.map((panel) => (panel.type === "row" ? {} : prepared(panel, data.answers[panel.id]))));
  document.body.style.background = theme.colors.background.canvas;
  createRoot(document.getElementById("root")).render(
    <ThemeContext.Provider value={theme}>
      <GlobalStyles isExtensionSidebarOpen={false} hackNoBackdropBlur />
      <Page dashboard={dashboard} panels={panels} range={range} />
    </ThemeContext.Provider>,
  );
  setTimeout(() => (document.title = "drawn"), 3000);
}

main().catch((error) => (document.body.innerText = error.stack));
