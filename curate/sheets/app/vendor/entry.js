// The parts of Apache ECharts that the page draws with; README.md says how this becomes echarts.min.js.
import { BoxplotChart, CustomChart, ScatterChart } from "echarts/charts";
import {
  BrushComponent,
  DataZoomInsideComponent,
  GridComponent,
  MarkLineComponent,
  TooltipComponent,
} from "echarts/components";
import { use } from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";

export { getInstanceByDom, init } from "echarts/core";

use([
  BoxplotChart,
  BrushComponent,
  CanvasRenderer,
  CustomChart,
  DataZoomInsideComponent,
  GridComponent,
  MarkLineComponent,
  ScatterChart,
  TooltipComponent,
]);
