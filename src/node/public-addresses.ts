import { isIP } from "node:net";
import ipaddr from "ipaddr.js";

/**
 * IPv6's global unicast addresses. All others are special or unassigned.
 *
 * @see RFC 4291 section 2.4; https://www.iana.org/assignments/ipv6-address-space
 */
const globalUnicast = ipaddr.IPv6.parseCIDR("2000::/3");

/**
 * Addresses of the services that cloud platforms provide inside their customers' networks, such as machine metadata
 * services, whose responses may contain credentials. Link-local addresses are not listed, because they are never
 * public.
 */
const platformNetworks = [
  // Azure: https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16
  "168.63.129.16/32",
  // Alibaba Cloud: https://www.alibabacloud.com/help/en/ecs/user-guide/view-instance-metadata
  "100.100.100.200/32",
  // AWS, EC2 and EKS: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html
  "fd00:ec2::/32",
  // Google Cloud: https://cloud.google.com/compute/docs/metadata/querying-metadata
  "fd20:ce::254/128",
  // Oracle Cloud: https://docs.oracle.com/iaas/Content/Compute/Tasks/gettingmetadata.htm
  "fd00:c1::a9fe:a9fe/128",
  "192.0.0.192/32",
  // Scaleway: https://www.scaleway.com/en/docs/instances/how-to/use-cloud-init
  "fd00:42::42/128",
].map((cidr) => ipaddr.parseCIDR(cidr));

/**
 * Reports whether an address is public. Private, loopback, link-local (cloud metadata services), unique local,
 * multicast and reserved addresses are not public, nor are the addresses of cloud platforms' own services or the IPv6
 * forms of non-public IPv4 addresses.
 */
export function isPublicAddress(address: string): boolean {
  // The library would also accept 010.0.0.1 (as 8.0.0.1) and 1.2.3.
  if (isIP(address) === 0) return false;
  const parsed = ipaddr.process(address);
  if (parsed.range() !== "unicast" || isPlatformAddress(parsed)) return false;
  // The library also calls ::127.0.0.1 and unassigned IPv6 ranges "unicast".
  return parsed instanceof ipaddr.IPv4 || parsed.match(globalUnicast);
}

/** Reports whether an address belongs to this machine or a private network but not to a cloud platform's service. */
export function isOwnNetworkAddress(address: string): boolean {
  if (isIP(address) === 0) return false;
  const parsed = ipaddr.process(address);
  return (
    ["loopback", "private", "uniqueLocal", "carrierGradeNat"].includes(parsed.range()) && !isPlatformAddress(parsed)
  );
}

function isPlatformAddress(address: ipaddr.IPv4 | ipaddr.IPv6): boolean {
  return platformNetworks.some(([network, bits]) => address.kind() === network.kind() && address.match(network, bits));
}
